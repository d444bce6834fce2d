"""Columns that a flow declares of its sources by and by: it begins without some, and each act declares one more.

Of a source of a database it is tables: the flow begins without the last ones, and without their outputs.

Records have all of them from the beginning, as those of an upstream that nobody has asked. So a value that a table
shows in an epoch of before was read by columns that were not in force.

The law: a row has the values of the columns that were in force when its epoch was bound, and null in all others; in
every table, whenever it was written, and by whom (`BindingLedger.columns`, `EpochContents`).

Invariant: the columns that are declared are more from act to act, never fewer.

>>> gains = Gains([Act(1.0, "gain", "orders"), Act(2.0, "gain", "orders")], {"orders": 1})
>>> full = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])
>>> gains.declared("orders", full).names, gains.gain("orders"), gains.declared("orders", full).names
(['id', 'amount'], None, ['id', 'amount', 'note'])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.perform import output_schema
from tidegauge.job.plan import Engine
from tidegauge.sources.abilities import Evolvable
from tidegauge.sources.mysql.source import MySqlSource
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.sources.push.source import PushedSource, streams_of
from tidegauge.testing.simulation.plan import Act

__all__ = ["Gains", "can_gain", "can_join"]


class Gains:
    """How many of its last columns each source that gains some lacks at present. able: how many it can do without."""

    def __init__(self, acts: Sequence[Act], able: Mapping[str, int]) -> None:
        found = [act.on for act in acts if act.what == "gain"]
        self.lacks: Final = {name: min(found.count(name), able[name]) for name in able if name in found}

    def gain(self, source: str) -> None:
        """Declare one more column of a source."""
        self.lacks[source] = max(0, self.lacks[source] - 1)

    def declared(self, source: str, columns: pa.Schema) -> pa.Schema:
        """Return which of a source's columns are declared at present."""
        return pa.schema(list(columns)[: len(columns) - self.lacks.get(source, 0)])

    def source(self, name: str, source: Any) -> Any:
        """Return a source with the columns that are declared."""
        if name not in self.lacks:
            return source
        if isinstance(source, PushedSource):
            database: Any = source.source
            return replace(source, source=database.having(self.declared(name, source.schema).names))
        return replace(source, columns=self.declared(name, source.data))

    def undeclared(self, flow: FlowSpec) -> frozenset[str]:
        """Return the outputs of tables that are not declared yet."""
        return frozenset(
            name
            for name, plan in flow.outputs.items()
            if plan.source in self.lacks
            and (streams := streams_of(flow.sources[plan.source]))
            and plan.channel in streams[len(streams) - self.lacks[plan.source] :]
        )


def can_gain(flow: FlowSpec, sources: Sequence[str], engine: Engine) -> dict[str, int]:
    """Return how many of its last columns a flow can begin without, of each of some sources that can gain any.

    Its outputs have `schema="add"` or "evolve", or the same rows without them. None is an input of a union.
    """
    inputs = {name for union in flow.derived.values() for name in union.made_of}
    found: dict[str, int] = {}
    for name in sources:
        source, count = flow.sources[name], 0
        columns = source.schema
        if (
            columns is None
            or name in inputs
            or not isinstance(source, Evolvable)
            or isinstance(source, PushedSource)
            or getattr(source, "metadata", False)
        ):
            continue
        while count + 1 < len(columns) and _does_without(flow, name, columns, count + 1, engine):
            count += 1
        if count:
            found[name] = count
    return found


def can_join(flow: FlowSpec) -> dict[str, int]:
    """Return how many of its last tables a flow can begin without, of each of its databases that can do so."""
    found = dict[str, int]()
    for name, source in flow.sources.items():
        if not (isinstance(source, PushedSource) and isinstance(source.source, PostgresSource | MySqlSource)):
            continue
        channels = {plan.channel for plan in flow.outputs.values() if plan.source == name}
        streams = streams_of(source)
        if count := len(streams) - 1 - next((at for at, one in enumerate(streams) if one in channels), len(streams)):
            found[name] = count
    return found


def _does_without(flow: FlowSpec, name: str, columns: pa.Schema, count: int, engine: Engine) -> bool:
    fewer = pa.schema(list(columns)[: len(columns) - count])
    try:
        return all(
            plan.evolution != "strict" or output_schema(plan, columns, engine).equals(rows)
            for plan in flow.outputs.values()
            if plan.source == name and plan.channel != "errors" and (rows := output_schema(plan, fewer, engine))
        )
    except TidegaugeError:
        return False
