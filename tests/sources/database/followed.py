"""A flow that follows a database: each of its tables by key, and all changes of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import BeforeStart
from tidegauge.errors.sinks import EpochReplaced

__all__ = ["at_epochs", "by_key", "caught_up", "ended", "flow_of", "held", "listed", "log", "shown"]


def flow_of(
    name: str, root: Path, source: Any, tables: Mapping[str, str], *, errors: bool = False, start: int | None = None
) -> tg.Dataflow:
    """Return a flow that keeps tables, each by its key, and their changes.

    errors: whether bad records are kept, from the epoch `start` on.
    """
    flow = tg.Dataflow(name, store=f"sqlite:///{root}/flow.db", tick=0.05)
    db = flow.source("db", source)
    for table, key in tables.items():
        sink = tg.DeltaSink(str(root / table), envelope="upsert", key=key, order="_sequence")
        flow.sink(table, db.table(table), sink)
        flow.sink(f"{table}_log", db.table(table).changelog("op"), tg.ParquetSink(str(root / f"{table}_log")))
    if errors:
        flow.sink("bad", db.errors, tg.ParquetSink(str(root / "bad")), start=start)
    return flow


def caught_up(flow: tg.Dataflow) -> tg.Dataflow:
    flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
    return flow


def ended(flow: tg.Dataflow, *tables: str) -> dict[str, TidegaugeError]:
    """Run a flow whose outputs of these tables end, and no others; return why each has failed."""
    with pytest.raises(TidegaugeError):
        caught_up(flow)
    found = tg.status(flow)
    assert [one.state for one in found.sources] == ["idle"], found.sources
    failed = {one.name: one.error for one in found.outputs if one.state == "failed" and one.error is not None}
    assert failed.keys() == {name for table in tables for name in (table, f"{table}_log")}
    return failed


def by_key(rows: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: repr(row[key]))


def held(flow: tg.Dataflow, table: str, key: str, **options: Any) -> list[dict[str, Any]]:
    """The rows of an upsert table, without what is not the database's."""
    rows = tg.read_arrow(flow, table, **options).drop_columns(["_sequence", "_epoch"])
    return by_key(rows.to_pylist(), key)


def log(flow: tg.Dataflow, table: str) -> list[Mapping[str, Any]]:
    """The changes of a table in their order."""
    return sorted(tg.read_arrow(flow, f"{table}_log").to_pylist(), key=lambda row: row["_sequence"])


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of a random machine, with the digest of its large value."""
    large = row["large"]
    return row["id"], row["n"], row["word"], None if large is None else hashlib.md5(large.encode()).hexdigest()


def listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table of a random machine, by their keys."""
    return sorted(map(shown, rows.select(["id", "n", "word", "large"]).to_pylist()))


def at_epochs(flow: tg.Dataflow, tables: Iterable[str]) -> Iterator[tuple[int, dict[str, pa.Table]]]:
    """Each epoch that can be read as it was, with the tables that there are by then."""
    for record, _ in tg.epochs(flow):
        rows: dict[str, pa.Table] = {}
        try:
            for table in tables:
                with suppress(BeforeStart):
                    rows[table] = tg.read_arrow(flow, table, as_of=record.epoch)
        except EpochReplaced:  # later epochs were committed together with it
            continue
        yield record.epoch, rows
