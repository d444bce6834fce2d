"""Minters that share a store: each a run on a host of its own, with a clock that may step, a line to the database on
which a commit can get lost, and points at which it can crash. And the model that all of them are held against."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from sqlalchemy import bindparam, select
from tests.postgres import Server
from tests.remap.store.wire import Loss, wire

from tidegauge.env import Effect, Env
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import (
    FlowAlreadyRunning,
    FrontierRegressed,
    HoldNotBound,
    HoldTooEarly,
    LeaseLost,
    SinceHeld,
    SinceTooFar,
    UpperMismatch,
)
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.store import EXPIRY, Lease, LeaseHolder, Loaded, Store
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.schema import changes, flows, holds, leases, partitions, sources, timeline
from tidegauge.remap.table import RemapTable

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)

Verdict: TypeAlias = type[Exception] | None
"""How something ends: with an error of this class, or well."""

Intruder: TypeAlias = Literal["nobody", "another", "another who binds", "itself"]


class Fate(NamedTuple):
    """How a write goes, and when its commit gets lost, who comes in between before it is tried again."""

    how: Literal["well", "crash before", "crash after", "question lost", "answer lost"] = "well"
    meanwhile: Intruder = "nobody"


WELL: Final = Fate()


REFUSALS: Final = (
    FlowAlreadyRunning,
    FrontierRegressed,
    HoldNotBound,
    HoldTooEarly,
    InvalidArgument,
    LeaseLost,
    SinceHeld,
    SinceTooFar,
    UnknownName,
    UpperMismatch,
)


class Crash(Exception):
    """The minter stops here."""


@dataclass
class Model:
    """A flow without a store. Each method does what it says, or says why not and does nothing."""

    sources: set[str] = field(default_factory=set)
    bound: list[dict[str, Frontier]] = field(default_factory=list)
    minted_at: list[datetime] = field(default_factory=list)
    published: int = 0
    since: int = 0
    holds: dict[str, int] = field(default_factory=dict)
    holder: str | None = None
    renewed_at: datetime = NOON

    @property
    def upper(self) -> int:
        return len(self.bound)

    def now(self, source: str) -> Frontier:
        return self.at(self.upper - 1, source)

    def at(self, epoch: int, source: str) -> Frontier:
        return self.bound[epoch].get(source, ORIGIN) if epoch >= 0 else ORIGIN

    def acquire(self, run: str, host: Host) -> Verdict:
        if self.holder not in (None, run) and host.clock - self.renewed_at < timedelta(seconds=EXPIRY):
            return FlowAlreadyRunning
        self.holder, self.renewed_at = run, host.clock
        return None

    def check(self, run: str) -> Verdict:
        return None if run == self.holder else LeaseLost

    def renew(self, run: str, host: Host) -> Verdict:
        if run == self.holder:
            self.renewed_at = host.clock
        return self.check(run)

    def release(self, run: str) -> Verdict:
        self.holder = None if run == self.holder else self.holder
        return None

    def register(self, run: str, source: str) -> Verdict:
        if run == self.holder:
            self.sources.add(source)
        return self.check(run)

    def append(self, run: str, expected: int, at: datetime, frontiers: Mapping[str, Frontier]) -> Verdict:
        if run != self.holder:
            return LeaseLost
        if expected != self.upper:
            return UpperMismatch
        for source, frontier in frontiers.items():
            if source not in self.sources:
                return UnknownName
            if not follows(frontier, self.now(source)):
                return FrontierRegressed
        self.bound.append({**(self.bound[-1] if self.bound else {}), **frontiers})
        self.minted_at.append(max([at, *self.minted_at]))
        return None

    def publish(self, run: str, expected: int, upper: int) -> Verdict:
        if run != self.holder:
            return LeaseLost
        if expected != self.published:
            return UpperMismatch
        if upper <= expected:
            return InvalidArgument
        if upper > self.upper:
            return UpperMismatch
        self.published = upper
        return None

    def advance_since(self, run: str, since: int) -> Verdict:
        if run != self.holder:
            return LeaseLost
        if since > max(self.published - 1, 0):
            return SinceTooFar
        if since > max(self.since, min(self.holds.values(), default=since)):
            return SinceHeld
        self.since = max(self.since, since)
        return None

    def hold(self, owner: str, epoch: int) -> Verdict:
        if epoch < self.since:
            return HoldTooEarly
        if epoch >= max(self.upper, 1):
            return HoldNotBound
        self.holds[owner] = epoch
        return None

    def let_go(self, owner: str) -> Verdict:
        return UnknownName if self.holds.pop(owner, None) is None else None

    def stored(self) -> Stored:
        """The rows that say so."""
        tables = {source: self.table(source) for source in sorted(self.sources)}
        return Stored(
            flow=[(self.upper, self.published, self.since)],
            timeline=[(epoch, at, epoch < self.published) for epoch, at in enumerate(self.minted_at)],
            sources=[(source,) for source in tables],
            changes=[(source, *change) for source, table in tables.items() for change in sorted(table.changes())],
            holders=[] if self.holder is None else [(self.holder,)],
            holds=sorted(self.holds.items()),
        )

    def table(self, source: str) -> RemapTable:
        """The same bindings as the core's own table, which never saw a store."""
        table = RemapTable(source)
        for epoch in range(self.upper):
            table.append(epoch, self.at(epoch, source))
        return table.compacted(self.since)

    def epochs_of(self, source: str, partition: str) -> list[int | None]:
        """By the definition, the epoch of each record of a partition, the first whose frontier is beyond it; and at
        last of those that are not bound yet: None, unless all that will ever come is."""
        found: list[int | None] = []
        for epoch in range(self.upper):
            found += [max(epoch, self.since)] * (self.at(epoch, source)[partition] - len(found))
        sealed = (epoch for epoch in range(self.upper) if self.at(epoch, source).sealed)
        end = next(sealed, None)
        return [*found, None if end is None else max(end, self.since)]


def follows(new: Frontier, old: Frontier) -> bool:
    """Whether nothing went back, and an end stayed the end that it was."""
    return new == old if old.sealed else all(new[partition] >= position for partition, position in old.items())


class Line(Protocol):
    """The way to a database. While it is `broken` the next commit gets lost on it; `lost` counts those."""

    loss: Loss
    broken: bool
    lost: int


class Disk:
    """A line to a file. What gets lost is said to be busy, as a lock would be that is on the network."""

    def __init__(self, database: Database) -> None:
        self.loss: Loss = "answer"
        self.broken = False
        self.lost = 0
        self._dialect = database._engine.dialect
        self._really = self._dialect.do_commit
        self._dialect.do_commit = self._commit  # type: ignore[method-assign, assignment]

    def _commit(self, connection: Any) -> None:
        broken, self.broken = self.broken, False
        self.lost += broken
        if not (broken and self.loss == "question"):
            self._really(connection)
        if broken:
            busy = sqlite3.OperationalError("database is locked")
            busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise busy


class Host:
    """A machine that runs minters, one after the other or side by side. Its clock is its own."""

    def __init__(self, url: str, line: Callable[[Database], Line]) -> None:
        self.clock = NOON
        self.pause: Callable[[], None] = _nothing
        self.database = Database(url, sleep=self._sleep)
        self.line = line(self.database)

    def _sleep(self, seconds: float) -> None:
        self.pause()
        self.clock += timedelta(seconds=seconds)


class Minter:
    """One run of a flow: a store of its own, and the lease once it was asked for."""

    def __init__(self, host: Host, unique: Callable[[], str]) -> None:
        self.host = host
        self.run = unique()
        self.env = Env(now=lambda: host.clock, unique=unique, point=self._point)
        self.store = Store(host.database, self.env)
        self.holder = LeaseHolder(
            name="ada", host=f"host of {self.run}", boot="", pid=1, process_started=None, run=self.run
        )
        self.twin = Store(host.database, self.env)
        self._crashes_at = ""
        self._lease: Lease | None = None

    @property
    def has_lease(self) -> bool:
        """Whether it was given a lease, be it lost by now."""
        return self._lease is not None

    @property
    def lease(self) -> Lease:
        """The lease that it has or had."""
        assert self._lease is not None
        return self._lease

    def take(self, flow: str) -> None:
        self._lease = self.store.acquire(flow, holder=self.holder)

    def append(self, expected: int, frontiers: Mapping[str, Frontier], *, by_twin: bool = False) -> None:
        """Bind an epoch; by the twin, which is another store of this run and knows nothing of what the first did."""
        store = self.twin if by_twin else self.store
        proposals = {source: Proposal(frontier=frontier) for source, frontier in frontiers.items()}
        assert store.append(self.lease, expected=expected, at=self.host.clock, proposals=proposals) == expected

    def attempt(
        self, do: Callable[[], object], effect: Effect | None, fate: Fate, pause: Callable[[], None]
    ) -> Verdict:
        """Do something, let it go as fate will, and return how it ended.

        pause: what happens between a commit that got lost and its repetition.
        """
        host = self.host
        how, _, when = fate.how.partition(" ")
        if how == "crash":
            self._crashes_at = f"{when} {effect}"
        elif when == "lost":
            with host.database.reading():
                """A new connection commits something of its own, which is not what is to get lost."""
            host.line.loss, host.line.broken, host.pause = "answer" if how == "answer" else "question", True, pause
        try:
            do()
        except (Crash, *REFUSALS) as error:
            return type(error)
        finally:
            self._crashes_at, host.pause, host.line.broken = "", _nothing, False
        return None

    def _point(self, name: str) -> None:
        if name == self._crashes_at:
            raise Crash(name)


def _nothing() -> None:
    return None


class Stored(NamedTuple):
    """The rows of one flow. What is of its sources is sorted by their names."""

    flow: list[tuple[int, int, int]]
    timeline: list[tuple[int, datetime, bool]]
    sources: list[tuple[str]]
    changes: list[tuple[str, int, str, int]]
    holders: list[tuple[str]]
    holds: list[tuple[str, int]]


_OF: Final = flows.c.name == bindparam("name")
QUERIES: Final = (
    select(flows.c.upper, flows.c.published, flows.c.since).where(_OF),
    select(timeline.c.epoch, timeline.c.minted_at, timeline.c.published_at.is_not(None))
    .join_from(timeline, flows)
    .where(_OF)
    .order_by(timeline.c.epoch),
    select(sources.c.name).join_from(sources, flows).where(_OF).order_by(sources.c.name),
    select(sources.c.name, changes.c.epoch, partitions.c.key, changes.c.position)
    .join_from(changes, sources)
    .join(flows)
    .join(partitions, partitions.c.id == changes.c.partition_id)
    .where(_OF)
    .order_by(sources.c.name, changes.c.epoch, partitions.c.key),
    select(leases.c.token).join_from(leases, flows).where(_OF),
    select(holds.c.owner, holds.c.epoch).join_from(holds, flows).where(_OF).order_by(holds.c.owner),
)
"""What `Stored` is made of, in its order."""


class Harbour:
    """One real store, some hosts on it, and somebody who looks on. Every example has a flow of its own in it."""

    def __init__(self, url: str, hosts: list[Host]) -> None:
        self.hosts = hosts
        self._numbers = count(1)
        self._watch = Store.open(url, env=Env())

    def unique(self) -> str:
        return f"{next(self._numbers):032x}"

    def begin(self) -> str:
        """Set all clocks to noon, and return the name of a flow that nobody has run."""
        for host in self.hosts:
            host.clock = NOON
        return f"flow {self.unique()}"

    def minter(self, host: int) -> Minter:
        """A new run."""
        return Minter(self.hosts[host], self.unique)

    def load(self, flow: str) -> Loaded:
        return self._watch.load(flow)

    def stored(self, flow: str) -> Stored:
        """What is there of a flow, at one instant."""
        with self._watch._database.reading() as connection:
            found = [[tuple(row) for row in connection.execute(query, {"name": flow})] for query in QUERIES]
            return Stored(*found)

    def close(self) -> None:
        self._watch.close()
        for host in self.hosts:
            host.database.close()


@contextmanager
def harbour(url: str, server: Server | None, *, hosts: int) -> Iterator[Harbour]:
    """A store with hosts; on a server each has a wire to it. Taken down at the end."""
    with ExitStack() as lines:

        def host() -> Host:
            if server is None:
                return Host(url, Disk)
            line = lines.enter_context(wire(server, "answer"))
            return Host(line.address(url), lambda _database: line)

        Store.open(url, env=Env()).close()
        made = Harbour(url, [host() for _ in range(hosts)])
        try:
            yield made
        finally:
            made.close()
