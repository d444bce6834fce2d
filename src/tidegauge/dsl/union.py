"""`tg.union`: the streams of several sources as one.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> web = flow.source("web", tg.GeneratorSource(10, columns="id long, amount double"))
>>> tills = flow.source("tills", tg.GeneratorSource(10, columns="id long, till int"))
>>> orders = flow.source("orders", tg.union(web, tills))
>>> flow.sink("orders", orders.filter("amount > 100 OR _source = 'tills'"), tg.ParquetSink("lake/orders"))
>>> flow.sources["orders"].schema.names
['id', 'amount', 'till', '_source']

Invariant: a union has whole sources of its own flow, each once. A union in a union stands for its sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegauge.dsl.shared import SourceStream
from tidegauge.errors.flow import ForeignStream, InvalidArgument
from tidegauge.errors.unions import CannotUnite
from tidegauge.flow.spec import Flow
from tidegauge.job.plan import WORDS
from tidegauge.remap.fromtime import PARTITIONS, SEQUENCE
from tidegauge.sources.abilities import from_time_of
from tidegauge.sources.protocol import Source
from tidegauge.sources.push.source import PushedSource
from tidegauge.sources.union import UnionInput, UnionSource

__all__ = ["Union", "union", "united_in"]

_COUNTED: Final = frozenset({PARTITIONS.kind, SEQUENCE.kind})
"""The clocks whose positions are partitions of a union. The state of a poll stays with its source, which asks."""


@dataclass(frozen=True, slots=True)
class Union:
    """The sources of streams, as one source that a flow can declare: see `union`."""

    streams: tuple[SourceStream, ...]


def union(*streams: SourceStream) -> Union:
    """Return the streams of several sources as one, for the `source` of their flow.

    `orders = flow.source("orders", tg.union(web, tills))`. Its rows are those of both, with the same epochs. The
    column `_source` says which one a row is from. A column that only some have is null for the others.

    The streams are those that `source` returned, without steps; steps follow on the union. Columns are declared.

    Raises `CannotUnite`, and `InvalidArgument` for fewer than two.
    """
    if len(streams) < 2 or not all(isinstance(stream, SourceStream) for stream in streams):
        raise InvalidArgument(parameter="streams", value=list(streams), expected="two streams of a flow, or more")
    for stream in streams:
        if stream.steps:
            words = ", ".join(WORDS[type(step)] for step in stream.steps)
            raise CannotUnite(
                why=f"the stream of {stream.source!r} has been through {words}",
                remedy="unite the sources first, and do that with the union: _source tells the rows of each apart",
            )
        if stream.channel != "rows":
            raise CannotUnite(
                why=f"{stream.source}.{stream.channel} is one of several streams of its source",
                remedy="unite the streams that `flow.source` returned; a union has an `errors` stream of its own",
            )
    return Union(streams)


def united_in(flow: Flow, sources: Mapping[str, Source], found: Union) -> UnionSource:
    """Return the source that a union is, in a flow with these sources. Raises `CannotUnite`, `ForeignStream`."""
    inputs: dict[str, UnionInput] = {}
    for stream in found.streams:
        if stream.flow is not flow:
            raise ForeignStream(stream=repr(stream), owner=stream.flow.spec.name, flow=flow.spec.name)
        source = sources[stream.source]
        many = source.inputs if isinstance(source, UnionSource) else (UnionInput(stream.source, source),)
        for one in many:
            if one.name in inputs:
                raise CannotUnite(why=f"source {one.name!r} is in it twice", remedy="name each source once")
            _check(one)
            inputs[one.name] = one
    made = UnionSource(tuple(inputs.values()))
    _ = made.schema  # raises for columns that do not go together
    return made


def _check(one: UnionInput) -> None:
    if isinstance(one.source, PushedSource):
        raise CannotUnite(
            why=f"source {one.name!r} pushes its records, which come once and wait for its own outputs",
            remedy="give it outputs of its own, and read the tables together",
        )
    if (kind := from_time_of(one.source).kind) not in _COUNTED:
        raise CannotUnite(
            why=f"the clock of source {one.name!r} is {kind!r}, which says more than positions of partitions",
            remedy="give it outputs of its own, and read the tables together",
        )
