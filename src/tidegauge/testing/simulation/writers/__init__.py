"""The upstream of a source in a simulated world: what writers do to it, and what a check may ask of it.

Invariant: the rows of a record depend on the seed, the source, the partition and the position alone, so a plan with
fewer acts writes the same rows at the places that are left.

>>> from tidegauge.sources import GeneratorSource
>>> upstream = upstream_of("shop", "orders", GeneratorSource(columns="id long"), VirtualClock(), seed=1)
>>> upstream.act(Act(0.5, "append", "orders", 3))
>>> sum(upstream.there().values())
3
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Protocol

from tidegauge.errors.simulable import NoCounterpart
from tidegauge.sources import FileSource, GeneratorSource, Json
from tidegauge.sources.batches.source import BatchSource
from tidegauge.sources.bytewax.logged import BytewaxLogSource
from tidegauge.sources.bytewax.source import BytewaxSource
from tidegauge.sources.listings.source import ListingSource
from tidegauge.sources.mysql.source import MySqlSource
from tidegauge.sources.polls.http import HttpSource
from tidegauge.sources.polls.source import PollingSource
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.sources.protocol import Source
from tidegauge.sources.push.source import PushedSource
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.evidence import UpstreamEvidence
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream import PartitionedLog, SimulatedFeed, SimulatedLog
from tidegauge.testing.simulation.upstream.counterpart import counterpart
from tidegauge.testing.simulation.upstream.folder import Folder
from tidegauge.testing.simulation.upstream.polled import polls_of
from tidegauge.testing.simulation.upstream.simulated import unmet
from tidegauge.testing.simulation.writers.bytewax import BytewaxUpstream
from tidegauge.testing.simulation.writers.database import DatabaseUpstream
from tidegauge.testing.simulation.writers.feed import FeedUpstream, WorldMeeting
from tidegauge.testing.simulation.writers.folder import FolderUpstream
from tidegauge.testing.simulation.writers.listings import ListingsUpstream
from tidegauge.testing.simulation.writers.loads import LoadsUpstream
from tidegauge.testing.simulation.writers.log import LogUpstream
from tidegauge.testing.simulation.writers.logged import LoggedUpstream
from tidegauge.testing.simulation.writers.mysql import FollowedBinlog
from tidegauge.testing.simulation.writers.polls import PollsUpstream
from tidegauge.testing.simulation.writers.postgres import FollowedPostgres

__all__ = ["Upstream", "upstream_of"]


class Upstream(UpstreamEvidence, Protocol):
    """An upstream that writers write to, and that may be away. whole: whether no part of it is gone at present."""

    @property
    def whole(self) -> bool: ...  # noqa: D102

    def source(self, meet: WorldMeeting) -> Any:
        """Return the source, as one driver has it."""
        ...

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Let nobody answer, or somebody again."""
        ...

    def forget(self, place: str) -> None:
        """Hear that nothing is bound of a place any more. What it was may be bound under another name."""
        ...

    def act(self, act: Act) -> None:
        """Do what a writer does."""
        ...


def upstream_of(
    flow: str, name: str, source: Source, clock: VirtualClock, *, seed: int, filling: Collection[str] = ()
) -> Upstream:
    """Return the upstream of a source. Raises `NoCounterpart`, `ColumnsNotDeclared` and `Ungeneratable`.

    filling: the streams of a database that only outputs have which fill in what changes leave out.
    """
    if isinstance(source, GeneratorSource) and not source.metadata:  # its rows are written, as others' are
        most = source.max_records_per_epoch
        log = SimulatedLog(PartitionedLog({name: 2}), columns=source.schema, max_records_per_epoch=most)
        return LogUpstream(name, log.placed(flow, name), seed=seed)
    if isinstance(source, PollingSource | HttpSource):
        return PollsUpstream(name, *polls_of(source), seed=seed)
    if isinstance(source, PushedSource) and isinstance(source.source, PostgresSource):
        server = partial(FollowedPostgres, source.source, clock, filling=filling)
        return DatabaseUpstream(name, source, source.source, server, seed=seed)
    if isinstance(source, PushedSource) and isinstance(source.source, MySqlSource):
        return DatabaseUpstream(name, source, source.source, partial(FollowedBinlog, source.source, clock), seed=seed)
    if isinstance(source, ListingSource) and isinstance(source.format, Json):
        return ListingsUpstream(name, source, clock, seed=seed)
    if isinstance(source, BytewaxSource):
        return BytewaxUpstream(name, source, clock, seed=seed)
    if isinstance(source, BytewaxLogSource):
        return LoggedUpstream(name, source, seed=seed)
    if isinstance(source, BatchSource):
        return LoadsUpstream(name, source, seed=seed)
    found = counterpart(source, name=name)
    stands_in = found.met(unmet)
    if isinstance(stands_in, SimulatedLog):
        return LogUpstream(name, stands_in.placed(flow, name), seed=seed)
    if isinstance(source, FileSource) and isinstance(found.upstream, Folder) and isinstance(source.format, Json):
        return FolderUpstream(name, source, found.upstream, clock, seed=seed)
    if isinstance(stands_in, PushedSource) and isinstance(stands_in.source, SimulatedFeed):
        return FeedUpstream(name, stands_in, stands_in.source, seed=seed)
    raise NoCounterpart(source=name, kind=type(source).__name__)
