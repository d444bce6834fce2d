"""`check_sink`: every law of a sink, each on a place of its own, and a report in words.

Invariant: nothing is raised for a broken law, and no law sees what another has done.

>>> import pyarrow.dataset as ds
>>> from tidegauge.sinks import ParquetSink
>>> class Bench:
...     def __init__(self, folder):
...         self.path = folder / "orders"
...         self.sink = ParquetSink(str(self.path))
...     def rows(self):
...         return ds.dataset(self.path).to_table().to_pylist() if self.path.exists() else []
>>> report = check_sink(Bench, crashes=0)
>>> report.ok, report.findings[3].name
(True, 'rows are hidden until they are committed')
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidegauge.testing.kit.commit_laws import COMMIT_LAWS
from tidegauge.testing.kit.driver_laws import DRIVER_LAWS, a_crash_leaves_all_or_nothing
from tidegauge.testing.kit.option_laws import OPTION_LAWS
from tidegauge.testing.kit.place import SinkOnTrial
from tidegauge.testing.kit.report import ConnectorReport
from tidegauge.testing.kit.sink_bench import SinkBench
from tidegauge.testing.kit.table_laws import TABLE_LAWS
from tidegauge.testing.kit.trial import Law, check

__all__ = ["check_sink"]


def check_sink(make: Callable[[Path], SinkBench], *, crashes: int = 12, deadline: float = 30.0) -> ConnectorReport:
    """Try every law of a sink, and report what held and what did not, with an example.

    Args:
        make: given an empty folder, which is removed again, makes a bench: a sink on a place of its own, where there
            is nothing yet. It is called at least once for each law.
        crashes: at how many instants of a commit a driver dies, each in a process of its own; 0 lets none die.
        deadline: seconds for each law. After them the report says which call was under way, and the check ends.

    Raises `BenchNotMade`.
    """
    dying: Law[SinkOnTrial] = partial(a_crash_leaves_all_or_nothing, crashes=crashes, within=deadline / 3)
    laws = (*COMMIT_LAWS, *DRIVER_LAWS, dying, *TABLE_LAWS, *OPTION_LAWS)

    def put(bench: SinkBench, folder: Path) -> SinkOnTrial:
        return SinkOnTrial(bench, folder, make)

    return check("sink", SinkBench, laws, make, deadline=deadline, put=put)
