"""`tg.shared`: a source of another flow, which that flow probes, binds and acknowledges for both.

>>> import tidegauge as tg
>>> shop = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> orders = shop.source("orders", tg.GeneratorSource(10, columns="id long, amount double"))
>>> billing = tg.Dataflow("billing", store="sqlite:///shop.db")
>>> rows = billing.source("orders", tg.shared(orders))
>>> billing.sink("large", rows.filter("amount > 100"), tg.ParquetSink("lake/large"))
>>> billing.spec.following
Following(flow='shop', sources={'orders': 'orders'})

A shared source *is* the source of its owner: the same format, options and columns. So both flows read and decode its
rows alike, and nothing has to be declared twice. What differs is who says how far it is: see
`remap.store.following`.

Invariant: a flow with shared sources has no others, and all are of one owner in one store. Only then are its epochs
the owner's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.following import CannotShare, SharedBeside
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.plan import Step
from tidegauge.remap.store import Following
from tidegauge.remap.store.address import parse
from tidegauge.sources.protocol import Source
from tidegauge.sources.push.source import PushedSource

__all__ = ["Shared", "SourceStream", "check_beside", "joined", "shared"]


@dataclass(frozen=True, slots=True)
class Shared:
    """A source of a flow, as another one of the same store declares it: see `shared`."""

    flow: str
    store: str
    name: str
    source: Source


@runtime_checkable
class SourceStream(Protocol):
    """A stream, which knows its flow and its source."""

    @property
    def flow(self) -> Flow:
        """The flow."""
        ...

    @property
    def source(self) -> str:
        """The name of its source."""
        ...

    @property
    def channel(self) -> str:
        """Which stream of the source."""
        ...

    @property
    def steps(self) -> tuple[Step, ...]:
        """What it has been through."""
        ...


def shared(of: SourceStream | Flow, source: str | None = None) -> Shared:
    """Return a source of another flow in the same store, for a flow that follows that one.

    of: the stream of the source, as the owner's `source` returned it; or the owner, with the name of the `source`.

    The flow that declares it has the owner's epochs, one for one, so its tables and the owner's can be read as of one
    number. The owner alone asks upstream, mints epochs and acknowledges, and does that no further than both hold.

    Raises `CannotShare` for what comes once, from a source that pushes.
    """
    if isinstance(of, SourceStream):
        if source is not None:
            raise InvalidArgument(parameter="source", value=source, expected="no name beside a stream")
        if of.steps or of.channel != "rows":
            expected = "the stream of a source, without steps, as `source` returned it"
            raise InvalidArgument(parameter="of", value=repr(of), expected=expected)
        owner, name = of.flow.spec, of.source
    else:
        spec = getattr(of, "spec", None)
        if not isinstance(spec, FlowSpec):
            raise InvalidArgument(parameter="of", value=of, expected="a flow, or the stream of one of its sources")
        if not isinstance(source, str):
            raise InvalidArgument(parameter="source", value=source, expected="the name of one of the flow's sources")
        owner, name = spec, source
    found = owner.source(name)
    if isinstance(found, PushedSource):
        raise CannotShare(
            flow=owner.name,
            source=name,
            why="it pushes its records, so they come once, to the one driver that is connected",
            remedy="declare the outputs in this flow, or give the other one a connection of its own",
        )
    return Shared(owner.name, owner.store, name, found)


def joined(
    flow: str, store: str, name: str, found: Shared, following: Following | None, own: Mapping[str, Source]
) -> tuple[Source, Following]:
    """Return the source to read, and whom the flow follows with it. Raises `CannotShare`, `SharedBeside`."""
    if found.flow == flow:
        raise CannotShare(
            flow=flow,
            source=found.name,
            why="it is to be shared with its own flow",
            remedy="use the stream of the source; it can have as many outputs as you like",
        )
    if parse(found.store) != parse(store):
        raise CannotShare(
            flow=found.flow,
            source=found.name,
            why=f"flow {flow!r} has another store",
            remedy="give both flows the same store; several flows can have one",
        )
    if following is None and own:
        raise SharedBeside(flow=flow, source=name, known=_known(own), why="it is shared, and those are not")
    if following is not None and following.flow != found.flow:
        why = f"it is one of flow {found.flow!r}, and those are of flow {following.flow!r}"
        raise SharedBeside(flow=flow, source=name, known=_known(own), why=why)
    known = {} if following is None else following.sources
    return found.source, Following(found.flow, {**known, name: found.name})


def check_beside(flow: str, name: str, following: Following | None, own: Mapping[str, Source]) -> None:
    """Raise `SharedBeside` for a source of a flow's own beside shared ones."""
    if following is not None:
        raise SharedBeside(
            flow=flow, source=name, known=_known(own), why=f"those are shared with flow {following.flow!r}, it is not"
        )


def _known(sources: Mapping[str, Source]) -> str:
    return ", ".join(map(repr, sources))
