"""All outputs of a flow at one epoch, for Spark, DuckDB and polars.

Tables are committed one after the other, so a reader that opens them directly may see one of them some epochs ahead
of another. A snapshot shows each as of the same published epoch, whatever is committed meanwhile.

Invariant. The rows are those of `read_arrow` as of the epoch. They are read when the engine asks for them, from the
files that were committed when the snapshot was made; if files are cleared away until then, the engine says so, and a
new snapshot has the rows.

>>> import tempfile, tidegauge as tg
>>> made = tempfile.TemporaryDirectory()
>>> flow = tg.Dataflow("shop", store=f"sqlite:///{made.name}/shop.db")
>>> visits = flow.source("visits", tg.GeneratorSource(5, columns="id long", max_records_per_epoch=3))
>>> flow.sink("visits", visits, tg.DeltaSink(f"{made.name}/visits"))
>>> flow.sink("late", visits.filter("id >= 2"), tg.ParquetSink(f"{made.name}/late"))
>>> _ = flow.run(until="caught-up", engine=tg.LocalEngine(threads=0))
>>> with tg.duckdb(flow, as_of=0) as connection:
...     connection.sql("SELECT count(*), (SELECT max(_epoch) FROM late) FROM visits").fetchall()
[(3, 0)]
>>> tg.scan_polars(flow, "visits").select("id").collect().height
5
>>> made.cleanup()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.command import NotPublished
from tidegauge.errors.readers import QueryEngineMissing
from tidegauge.errors.sinks import OutputIsNoTable
from tidegauge.flow.spec import Flow
from tidegauge.looking.asof import AsOf
from tidegauge.looking.read import frame_of
from tidegauge.looking.view import View, view_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from polars import LazyFrame
    from pyspark.sql import DataFrame

__all__ = ["Snapshot", "duckdb", "scan_polars", "snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The outputs of a flow as of one epoch, as frames of a Spark session by the outputs' names."""

    epoch: int
    frames: Mapping[str, DataFrame] = field(repr=False)


def snapshot(spark: Any, flow: Flow, *, as_of: AsOf = None, outputs: Sequence[str] | None = None) -> Snapshot:
    """Make a temporary view of each output, all as of one epoch, and return the epoch and the frames.

    Args:
        spark: the session, classic or Connect, that gets the views. They have the outputs' names; views of an earlier
            snapshot are replaced. In SQL, write a name that has a `-` or a `.` between backticks.
        flow: the flow.
        as_of: an epoch, a time or positions of sources; None for the newest published epoch that all of them hold.
        outputs: the names of the outputs; all that are tables if None.

    Raises what `read` raises.
    """
    views = _views(flow, as_of, outputs)
    frames = {name: frame_of(spark, view) for name, view in views.items()}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"`{name}`")
    return Snapshot(_epoch(views), frames)


def duckdb(flow: Flow, *, as_of: AsOf = None, outputs: Sequence[str] | None = None) -> DuckDBPyConnection:
    """Return a connection to a DuckDB in memory that has a view of each output, all as of one epoch. Needs no Spark.

    Conditions and columns of a query are handed down to the files. Arguments and errors are those of `snapshot`; also
    raises `QueryEngineMissing`.
    """
    engine = _engine("duckdb", "duckdb")
    views = _views(flow, as_of, outputs)
    connection = engine.connect()
    for name, view in views.items():
        connection.register(name, _rows(view))
    return connection  # type: ignore[no-any-return]


def scan_polars(flow: Flow, output: str, *, as_of: AsOf = None) -> LazyFrame:
    """Return an output as a LazyFrame of polars, as of an epoch, a time or positions of sources. Needs no Spark.

    Conditions and columns of a query are handed down to the files. Raises what `read_arrow` raises before it reads,
    and `QueryEngineMissing`.
    """
    engine = _engine("scan_polars", "polars")
    return engine.scan_pyarrow_dataset(_rows(view_of(flow.spec, output, as_of)))  # type: ignore[no-any-return]


def _engine(function: str, library: str) -> Any:
    try:
        return import_module(library)
    except ImportError as missing:
        raise QueryEngineMissing(function=function, library=library, detail=str(missing)) from None


def _views(flow: Flow, as_of: AsOf, outputs: Sequence[str] | None) -> dict[str, View]:
    """Return views of outputs as of one epoch: the one that is named, or the newest that each of them holds."""
    spec = flow.spec
    found: dict[str, View] = {}
    for name in spec.outputs if outputs is None else outputs:
        try:
            found[name] = view_of(spec, name, _epoch(found) if found and as_of is not None else as_of)
        except OutputIsNoTable:
            if outputs is not None:
                raise
    if not found:
        raise NotPublished(as_of="a table", published=0)
    epoch = _epoch(found)
    return {name: view if view.epoch == epoch else view_of(spec, name, epoch) for name, view in found.items()}


def _epoch(views: Mapping[str, View]) -> int:
    return min(view.epoch for view in views.values())


def _rows(view: View) -> Any:
    """Return the rows of a view as a dataset."""
    return view.dataset().filter(pyarrow.compute.field("_epoch") <= pa.scalar(view.epoch))
