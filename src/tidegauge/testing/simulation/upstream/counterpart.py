"""`counterpart`: what stands in for a user's source in a simulation.

Its upstream is in memory and empty, and the simulation writes to it. A topic becomes a log, and a source with the
same columns and options reads it. A `FileSource` reads a folder in memory. A source that is polled asks a service in
memory, by a function with the same columns and merge strategy.
A `GeneratorSource` stands for itself: its rows follow from its configuration
and from the time that it is given. A source of your own has one method that
returns what stands in for it. A source that pushes needs none: its law says what any subscription gives, so a feed of
the same streams stands in for it.

>>> from tidegauge.sources import Json, KafkaSource
>>> source = KafkaSource("kafka:9092", topic="orders", format=Json("id long"), max_records_per_epoch=10)
>>> simulated = counterpart(source, name="orders")
>>> simulated.upstream.topics, simulated.met(print).schema.names
({'orders': 2}, ['id'])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.simulable import ClockNotSimulated, ColumnsNotDeclared, NoCounterpart
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import PARTITIONS
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.file.source import FileSource
from tidegauge.sources.generator import GeneratorSource
from tidegauge.sources.kafka import KafkaSource
from tidegauge.sources.metadata import MESSAGE, without_metadata
from tidegauge.sources.polls.http import HttpSource
from tidegauge.sources.polls.source import PollingSource
from tidegauge.sources.protocol import OnBadRecord, Source, Split
from tidegauge.sources.push.source import PushedSource
from tidegauge.testing.simulation.upstream.attending import attended_in
from tidegauge.testing.simulation.upstream.feed import FeedLog
from tidegauge.testing.simulation.upstream.feed_source import SimulatedFeed
from tidegauge.testing.simulation.upstream.folder import Folder, read_from
from tidegauge.testing.simulation.upstream.log import PartitionedLog
from tidegauge.testing.simulation.upstream.polled import PolledService, polls_of
from tidegauge.testing.simulation.upstream.simulated import SimulatedLog

__all__ = ["Counterpart", "MetSource", "Simulable", "counterpart"]

_UNNAMED: Final = "simulated"


@runtime_checkable
class Simulable(Protocol):
    """A source of the user's own that can be simulated."""

    def simulated(self) -> Source:
        """Return a source of the same columns that asks nobody: its data is in memory, and it reads no clock."""
        ...


@dataclass(frozen=True)
class Counterpart:
    """What stands in for a source. upstream: what a simulation writes to, None where there is nothing to write.

    It outlives drivers. Each of them has a source of its own over it, which `met` returns.
    """

    upstream: PartitionedLog | Folder | FeedLog | PolledService | None
    met: Callable[[Callable[[str], None]], Source]
    """Returns a source that remembers nothing, given what it calls before and after each call, see `POINTS`."""


def counterpart(source: Source, *, name: str, partitions: int = 2) -> Counterpart:
    """Return what stands in for a source in a simulation.

    name: the source's, for errors. partitions: of each topic. Raises `NoCounterpart`, `ColumnsNotDeclared` and
    `ClockNotSimulated`.
    """
    match source:
        case PushedSource():
            return _pushed(source, name, partitions)
        case Simulable():
            return _own(source.simulated())
        case GeneratorSource():
            return Counterpart(None, partial(MetSource, source))
        case KafkaSource():
            return _own(_log(source, name, partitions))
        case PollingSource() | HttpSource():
            polls, service = polls_of(source)
            return Counterpart(service, lambda meet: MetSource(replace(polls, function=service.answer), meet))
        case FileSource():
            folder = Folder()
            return Counterpart(folder, lambda meet: MetSource(read_from(source, folder), meet))
        case _:
            raise NoCounterpart(source=name, kind=type(source).__name__)


def _own(source: Source) -> Counterpart:
    if isinstance(source, SimulatedLog):
        return Counterpart(source.log, lambda meet: replace(source, meet=meet))
    return Counterpart(None, partial(MetSource, source))


def _pushed(user: PushedSource, name: str, partitions: int) -> Counterpart:
    given: Any = user.source
    if isinstance(given, Simulable):
        source: Any = given.simulated()
        if not isinstance(source, SimulatedFeed):
            raise NoCounterpart(source=name, kind=type(given).__name__)
    elif user.from_time is not PARTITIONS:
        raise ClockNotSimulated(source=name, kind=user.from_time.kind)
    else:
        source = SimulatedFeed(FeedLog(partitions=partitions), streams=dict(given.streams), unit=user.unit)
    return Counterpart(source.feed, lambda meet: replace(user, source=replace(source, meet=meet)))


def _log(source: KafkaSource, name: str, partitions: int) -> SimulatedLog:
    if source.envelope in ("upsert", "debezium"):  # what a simulation writes to a log are rows of any values
        raise NoCounterpart(source=name, kind=f"KafkaSource with envelope={source.envelope!r}")
    if source.schema is None:
        raise ColumnsNotDeclared(source=name)
    topics = source.topics.names or (_UNNAMED,)
    return SimulatedLog(
        PartitionedLog(dict.fromkeys(topics, partitions)),
        columns=without_metadata(source.schema, metadata=source.metadata, columns=MESSAGE),
        topic=topics,
        start=source.start,
        group=source.group,
        metadata=source.metadata,
        max_records_per_epoch=source.max_records_per_epoch,
        split_records=source.split_records,
        on_data_loss=source.on_data_loss,
        committed=source.connection.get("isolation.level", "read_committed") != "read_uncommitted",
    )


def _as_it_is(env: Env) -> Env:
    return env


def _nothing(_env: Env) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class MetSource:
    """A source that behaves as the one it wraps, and meets the world before and after each call.

    within: returns the world as what attends the source in a run knows it. more: what else that is given, by name.
    """

    inner: Any
    meet: Callable[[str], None]
    within: Callable[[Env], Env] = _as_it_is
    more: Callable[[Env], Mapping[str, Any]] = _nothing

    @property
    def unit(self) -> str:
        """The unit of the inner source."""
        return str(self.inner.unit)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the inner source."""
        return self.inner.schema

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration of the inner source."""
        found: Mapping[str, Any] = self.inner.describe()
        return found

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Ask the inner source."""
        self.meet("probe")
        observed: Observation = self.inner.probe(bound, now=now)
        self.meet("probed")
        return observed

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Let the inner source plan."""
        self.meet("plan")
        splits: list[Split] = self.inner.plan(slices, bound)
        self.meet("planned")
        return splits

    def read(self, split: Any, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Let the inner source read."""
        self.meet("read")
        yield from self.inner.read(split, on_bad_record)
        self.meet("have read")

    def acknowledge(self, frontier: Frontier) -> None:
        """Tell the inner source."""
        self.meet("acknowledge")
        self.inner.acknowledge(frontier)
        self.meet("acknowledged")

    def __getattr__(self, name: str) -> Any:
        """Return what else the inner source has: each of its protocols is one of this source, too."""
        if name == "inner" or name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.inner, name)
        if name == "lost":
            return self._lost
        if name == "attended":
            return lambda env, **_: attended_in(self.meet, found, self.within(env), self.more(env))
        if name == "placed":
            return lambda flow, name: replace(self, inner=found(flow, name))
        return found

    def _lost(self, slices: Sequence[Slice], bound: Bound) -> Sequence[Slice]:
        self.meet("lost")
        found: Sequence[Slice] = self.inner.lost(slices, bound)
        self.meet("told lost")
        return found
