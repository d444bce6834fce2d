"""`check_source`: every law of a source, each on an upstream of its own, and a report in words.

`check_push_source` does the same for a source that pushes.

Invariant: nothing is raised for a broken law, and no law sees what another has done.

>>> from datetime import UTC, datetime, timedelta
>>> from tidegauge.sources import GeneratorSource
>>> START = datetime(2026, 1, 1, tzinfo=UTC)
>>> class Ticking:
...     source = GeneratorSource(columns="id long", rate=1.0, start=START)
...     now = START - timedelta(seconds=1)
...     def add(self, count):
...         self.now += timedelta(seconds=count)
...         return [{} for _ in range(count)]  # whatever is in them
>>> report = check_source(lambda folder: Ticking(), many=0)
>>> report.ok, report.findings[2].name
(True, 'reads give the records that were added')
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidegauge.testing.kit.push_bench import PushBench
from tidegauge.testing.kit.push_laws import PUSH_LAWS
from tidegauge.testing.kit.reading_laws import READING_LAWS, memory_is_bounded
from tidegauge.testing.kit.report import ConnectorReport
from tidegauge.testing.kit.source_bench import SourceBench
from tidegauge.testing.kit.trial import Law, check
from tidegauge.testing.kit.trouble_laws import TROUBLE_LAWS

__all__ = ["check_push_source", "check_source"]


def check_source(
    make: Callable[[Path], SourceBench], *, many: int = 50_000, deadline: float = 30.0
) -> ConnectorReport:
    """Try every law of a source, and report what held and what did not, with an example.

    Args:
        make: given an empty folder, which is removed again, makes a bench: a source on an empty upstream of its own.
            It is called once for each law.
        many: how many records the law of bounded memory adds at once; 0 leaves it out, where upstream is slow.
        deadline: seconds for each law. After them the report says which call was under way, and the check ends.

    Raises `BenchNotMade`.
    """
    memory: Law[SourceBench] = partial(memory_is_bounded, count=many)
    laws = (*READING_LAWS, *TROUBLE_LAWS, memory)
    return check("source", SourceBench, laws, make, deadline=deadline, put=lambda bench, _folder: bench)


def check_push_source(make: Callable[[Path], PushBench], *, deadline: float = 30.0) -> ConnectorReport:
    """Try every law of a source that pushes, and report what held and what did not, with an example.

    Args:
        make: given an empty folder, which is removed again, makes a bench: a source on an empty log of its own. It is
            called once for each law.
        deadline: seconds for each law. After them the report says which call was under way, and the check ends.

    Raises `BenchNotMade`.
    """
    return check("source", PushBench, PUSH_LAWS, make, deadline=deadline, put=lambda bench, _folder: bench)
