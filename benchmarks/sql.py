"""SQL of the local engine on one core, beside DuckDB and DataFusion on the same expressions and the same rows.

A million orders in 16 batches, which are in memory on every side; the results are, too. Each side has one thread:
DuckDB in this process, DataFusion in an environment of its own. The rows of both peers are compared with ours before
anything is timed. Where dialects differ, the text does; the peers' instants have no zone, which is faster there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from benchmarks.figures import Figure
from benchmarks.peers.environments import Answering, Missing, answering, datafusion_python
from benchmarks.room import Room
from tidegauge.engine.plain.steps import without_spark
from tidegauge.job.plan import Filter, Select, Step

__all__ = ["measure"]

_BATCHES: Final = 16
_START: Final = 1_793_491_200_000_000
"""2026-11-01 in microseconds."""


@dataclass(frozen=True, slots=True)
class _Case:
    """An expression in our text, and in a peer's where that is another one; its column is `x`."""

    ours: str
    peers: str = ""
    where: str = ""

    @property
    def name(self) -> str:
        return f"WHERE {self.where}" if self.where else self.ours

    @property
    def steps(self) -> tuple[Step, ...]:
        """What a flow has."""
        selected = Select((f"{self.ours} AS x",))
        return (Filter(self.where), selected) if self.where else (selected,)

    @property
    def query(self) -> str:
        """What a peer is asked."""
        condition = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {self.peers or self.ours} AS x FROM orders{condition}"


_CASES: Final = (
    _Case("id", where="amount > 100"),
    _Case("amount * 1.2"),
    _Case("CASE WHEN page LIKE '/checkout%' THEN 'buys' WHEN page LIKE '/search%' THEN 'looks' ELSE 'else' END"),
    _Case("upper(customer)"),
    _Case("concat(customer, '-', substring(page, 2, 4))"),
    _Case("cast(number AS bigint)"),
    _Case("cast(id AS string)", "cast(id AS varchar)"),
    _Case("cast(amount AS bigint)", "cast(trunc(amount) AS bigint)"),
    _Case("to_date(placed)", "cast(placed AS date)"),
    _Case("year(placed)", "date_part('year', placed)"),
)


def _orders(rows: int) -> pa.Table:
    """Return the orders, as Arrow has those that a source reads."""
    mixed = np.arange(rows, dtype=np.int64) * 2_654_435_761 % (1 << 32)
    users = np.array([f"user-{n:06d}" for n in range(1000)], dtype=object)
    pages = np.array(["/catalogue/shelf", "/search/results", "/account/orders", "/checkout/basket"], dtype=object)
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "customer": pa.array(users[mixed % 1000], pa.string()),
            "amount": pa.array(mixed // 11 % 100_000 / 100),
            "page": pa.array(pages[mixed // 7 % 4], pa.string()),
            "number": pa.array(mixed).cast(pa.string()),
            "placed": pa.array(_START + mixed % 2_419_200 * 1_000_000, pa.timestamp("us", tz="UTC")),
        }
    )


def _ours(case: _Case, batches: Sequence[pa.RecordBatch]) -> Callable[[], pa.Table]:
    functions, schema = without_spark(case.steps, batches[0].schema, output="x")
    [step] = functions

    def run() -> pa.Table:
        return pa.Table.from_batches([step.function(batch) for batch in batches], schema)

    return run


def _same(ours: pa.Table, theirs: pa.Table, *, peer: str, case: _Case) -> None:
    """Raise unless both have the same values: a figure of different work is none."""
    if not ours["x"].combine_chunks().equals(theirs["x"].cast(ours["x"].type).combine_chunks()):
        raise RuntimeError(f"{peer} has other values for {case.query}")


def _timed(run: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    run()
    return (time.perf_counter() - begun) * 1000


def measure(room: Room) -> list[Figure]:
    """Measure each expression beside both peers, in turns."""
    pa.set_cpu_count(1)
    rows, turns = room.size(1_000_000, 16_000), room.size(7, 2)
    orders = _orders(rows)
    batches = orders.to_batches(max_chunksize=-(-rows // _BATCHES))
    zoneless = orders.set_column(
        orders.column_names.index("placed"), "placed", orders["placed"].cast(pa.timestamp("us"))
    )
    given = pa.Table.from_batches(zoneless.to_batches(max_chunksize=-(-rows // _BATCHES)))
    with ExitStack() as opened:
        connection = opened.enter_context(duckdb.connect(config={"threads": 1}))
        connection.register("orders", given)
        datafusion = _datafusion(room, given, opened)
        return [figure for case in _CASES for figure in _measured(room, case, batches, connection, datafusion, turns)]


def _datafusion(room: Room, orders: pa.Table, opened: ExitStack) -> Answering | None:
    """Begin the other peer, None where it cannot be had."""
    given = room.folder / "orders.feather"
    feather.write_feather(orders, str(given), compression="uncompressed", chunksize=-(-len(orders) // _BATCHES))
    try:
        return opened.enter_context(answering(datafusion_python(), "benchmarks.peers.with_datafusion", given))
    except Missing as missing:
        room.say(f"without DataFusion: {missing}")
        return None


def _measured(
    room: Room,
    case: _Case,
    batches: Sequence[pa.RecordBatch],
    connection: Any,
    datafusion: Answering | None,
    turns: int,
) -> list[Figure]:
    room.say(case.name)
    run = _ours(case, batches)

    def duck() -> pa.Table:
        return connection.sql(case.query).to_arrow_table()

    _same(run(), duck(), peer="DuckDB", case=case)
    if datafusion is not None:
        _same(run(), _kept(room, case, datafusion), peer="DataFusion", case=case)
    ours, theirs, others = [], [], []
    for _ in range(turns):
        ours.append(_timed(run))
        theirs.append(_timed(duck))
        if datafusion is not None:
            others.append(1000 * datafusion.ask("time", case.query)["seconds"])
    rows = sum(batch.num_rows for batch in batches)
    figures = [Figure(case.name, "ms", tuple(ours), tuple(theirs), "DuckDB", note=f"{rows:,} rows")]
    if others:
        figures.append(Figure("the same", "ms", tuple(ours), tuple(others), "DataFusion"))
    return figures


def _kept(room: Room, case: _Case, datafusion: Answering) -> pa.Table:
    path: Path = room.fresh("answer.feather")
    datafusion.ask("keep", path, case.query)
    return feather.read_table(str(path))
