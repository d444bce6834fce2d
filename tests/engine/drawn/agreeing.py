"""A described flow on every engine, and all in what they differ."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.engine.drawn.described import Described, write
from tests.engine.drawn.on_sail import Beside
from tests.engine.drawn.outcomes import Outcome, by_spark, differences, outcome

import tidegauge as tg


def differing(described: Described, session: Any, sail: Beside | None) -> list[str]:
    """Say in what the engines differ about a flow. Each has a folder of its own; the files are the same."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "in"
        write(described, files)
        if sail is not None:
            sail.ask(described, files, Path(folder) / "sail")
        try:
            with closing(tg.LocalEngine(threads=2)) as engine:
                local = outcome(described, files, Path(folder) / "local", engine)
            both, twins = by_spark(described, local)
            with closing(tg.SparkEngine(session)) as engine:
                spark = outcome(both, files, Path(folder) / "spark", engine)
        finally:
            on_sail = sail.answer() if sail is not None else None
        found = differences(spark, local, "local", twins=twins)
        if on_sail is not None:
            found += differences(_of(spark, described.names), on_sail, "sail")
            more = on_sail.refused.keys() - local.refused.keys()
            found += [f"{name} is refused by sail, and not by local" for name in sorted(more)]
        return found


@contextmanager
def closing(engine: Any) -> Iterator[Any]:
    """Close an engine at the end."""
    try:
        yield engine
    finally:
        engine.close()


def _of(found: Outcome, names: list[str]) -> Outcome:
    """Return what came of some of the outputs."""
    kept = {what: {n: of for n, of in every.items() if n in names} for what, every in vars(found).items()}
    return replace(found, **kept)
