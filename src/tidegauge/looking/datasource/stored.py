"""An output as its flow's store describes it: enough to read its table, where the flow's own code is not at hand.

Invariant: nothing that the store says is evaluated. A kind of sink that is not known here is refused, and so is one
whose rows are in no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegauge.env import Env
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.readers import NoRowsYet, NotReadBySpark
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.plan import OutputPlan
from tidegauge.looking.asof import AsOf
from tidegauge.looking.datasource.options import Options
from tidegauge.looking.inspect import opened
from tidegauge.looking.view import View, viewed
from tidegauge.remap.policy import Manual
from tidegauge.remap.store import Loaded, LoadedOutput, LoadedSource, Store
from tidegauge.sinks import DeltaSink, IcebergSink, ParquetSink
from tidegauge.sinks.protocol import Applying, Sink

__all__ = ["StoredOutput", "found", "looking", "stored"]

_BY_KEY: Final = ("envelope", "key", "order", "deleted")


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An output in an open store, with what that holds of the flow."""

    flow: FlowSpec
    name: str
    store: Store
    loaded: Loaded

    @property
    def known(self) -> LoadedOutput:
        """What the store knows of it."""
        return self.loaded.outputs[self.name]

    @property
    def source(self) -> LoadedSource:
        """What the store knows of its source."""
        return self.loaded.sources[self.known.source]

    @property
    def by_key(self) -> bool:
        """Whether its table has one row for each key."""
        sink = self.flow.outputs[self.name].sink
        return isinstance(sink, Applying) and sink.applies

    def view(self, as_of: AsOf, *, since: int = 0, upto: int | None = None) -> View:
        """Return its files as of a moment, as `viewed` does. Raises `NoRowsYet`, and what `read_arrow` raises."""
        view = viewed(self.flow, self.name, as_of, store=self.store, loaded=self.loaded, since=since, upto=upto)
        if not view.table:
            raise NoRowsYet(output=self.name, flow=self.flow.name)
        return view


@contextmanager
def looking(options: Options) -> Iterator[Store]:
    """Open the store of a flow. Raises `FlowNeverRan`."""
    with opened(_bare(options), Env()) as store:
        yield store


def found(store: Store, options: Options) -> StoredOutput:
    """Return an output of the flow. Raises `UnknownName`, `NotReadBySpark`."""
    bare, loaded = _bare(options), store.load(options.flow)
    known = loaded.outputs.get(options.output)
    if known is None:
        raise UnknownName(kind="output", name=options.output, known=sorted(loaded.outputs))
    plan = OutputPlan(options.output, known.source, "rows", (), _sink(options.output, known.config))
    return StoredOutput(replace(bare, outputs={options.output: plan}), options.output, store, loaded)


@contextmanager
def stored(options: Options) -> Iterator[StoredOutput]:
    """Open a store to look at an output. Raises `FlowNeverRan`, `UnknownName`, `NotReadBySpark`."""
    with looking(options) as store:
        yield found(store, options)


def _bare(options: Options) -> FlowSpec:
    return FlowSpec(options.flow, options.address, Manual(), {}, frozenset(), {})


def _sink(output: str, config: Mapping[str, Any]) -> Sink:
    """Return the sink that a configuration describes, as far as it takes to read its table."""
    kept = {name: config[name] for name in _BY_KEY if name in config}
    match config:
        case {"kind": "delta", "path": str() as path}:
            return DeltaSink(path, **kept)
        case {"kind": "parquet", "path": str() as path}:
            return ParquetSink(path)
        case {"kind": "iceberg", "table": str() as table, "warehouse": str() as warehouse}:
            return IcebergSink(table, warehouse, catalog=config.get("catalog"), **kept)
        case _:
            raise NotReadBySpark(output=output, kind=str(config.get("kind", "unknown")))
