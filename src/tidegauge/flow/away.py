"""Outputs and stores that are away at present: each is tried again after growing delays, and the run goes on.

*Outputs.* A table that is away when a flow begins is no reason not to begin: its broker elects a leader, its mount
comes back. So the flow is rendered without the output, which is `stalled`. Beside the worker it is tried again; once
it is open, the flow is rendered anew, with it. So it is with a table that vanishes while the flow runs.

*The store.* Without it a flow can neither bind nor publish. So what runs into that ends the worker of the run and not
the run: the commits under way are seen through, and the flow is rendered anew once the store takes writes. It is
tried, without end, by what says most: the store is recognised, and the lease is renewed. A file that was moved on a
disk which is there is no outage: somebody did that, and may be about to put another one in its place. It is waited
for until the lease would have run out (`EXPIRY`), and then it is gone.

Invariants. While an output is away nothing is published, as its upper is not known, and nothing is acknowledged that
it may lack. Retries beside the worker remove nothing that this driver has staged: a table is swept only if no other
output stages into the same place. A table that holds less than it did in this run is away, whatever is in its place.

While the store is away nothing is bound, published or staged. The lease comes first: where another driver has taken
it, `LeaseLost` ends the run; where nobody has, it is ours, however old it is. A store that is another one by then
ends it with `StoreReplaced`. A store that has room for a lease may have none for an epoch: so the delays grow on, and
the outage lasts, until something was bound or published, or nobody ran into it for `QUIET` seconds.

>>> away = Away.first(OSError("no route"), now=8.0)
>>> away.attempt, away.due(8.1), away.due(8.3), round(away.again(OSError("no route"), now=8.5).until, 1)
(1, False, True, 8.9)
>>> full = StoreFull(url="sqlite:///shop.db", detail="database or disk is full")
>>> env = Env(monotonic=iter([0.0, 0.1, 0.3, 0.3, 0.4]).__next__)
>>> outage = Outage(lambda: print("it is ours"), env=env, spawn=_done)
>>> outage.begin(full, at=(7, 6))
>>> outage.back(), outage.back()
it is ours
(False, True)
>>> outage.lasts(at=(7, 6)), outage.lasts(at=(8, 6))
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidegauge.dataflow import OperatorBuilder, Scope, Stream
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.sinks import TableWentBack
from tidegauge.errors.store import StoreAway, StoreFull, StoreReplaced, StoreUnreachable
from tidegauge.flow.belonging import whole
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.store import EXPIRY, Lease
from tidegauge.sinks.persist import Committed
from tidegauge.sinks.protocol import OutputId, Sweeping, Table
from tidegauge.sources.sweep import backoff

if TYPE_CHECKING:
    from tidegauge.flow.board import Board

__all__ = ["QUIET", "WAITED_FOR", "Absent", "Away", "Outage", "waited_for"]

Told: TypeAlias = Callable[[str, Exception, int], None]
"""Is told an output that is away, why, and how often it was tried in a row."""

WAITED_FOR: Final = (StoreFull, StoreAway, StoreUnreachable)
"""The errors of a store that may come back."""

QUIET: Final = 60.0
"""Seconds, twice the longest delay, after which a store that nobody ran into again is well."""


@dataclass(frozen=True, slots=True)
class Away:
    """Why an output could not be opened, how often in a row, and the instant from which on it is tried again."""

    error: Exception
    attempt: int
    until: float

    @staticmethod
    def first(error: Exception, *, now: float) -> Away:
        """Return what a first failure makes of an output."""
        return Away(error, 1, now + backoff(1))

    def again(self, error: Exception, *, now: float) -> Away:
        """Return it after one more failure."""
        return Away(error, self.attempt + 1, now + backoff(self.attempt + 1))

    def due(self, now: float) -> bool:
        """Whether it may be tried again."""
        return now >= self.until


class Absent:
    """The outputs of a run that are away, and the attempts at them that are under way."""

    def __init__(self, flow: FlowSpec, lease: Lease, *, env: Env, spawn: Spawn) -> None:
        self._flow: Final = flow
        self._lease: Final = lease
        self._env: Final = env
        self._spawn: Final = spawn
        self.away: Final[dict[str, Away]] = {}
        """The outputs that cannot be opened at present."""
        self._attempts: dict[str, Future[None]] = {}
        self._held: Mapping[str, int] = {}
        self._filling: Collection[str] = ()
        self.least: Final[dict[str, int]] = {}
        """How far the table of each output was when it was seen last in this run."""

    @property
    def errors(self) -> dict[str, Exception]:
        """Why each output is away."""
        return {name: away.error for name, away in self.away.items()}

    def missing(self, board: Board) -> TidegaugeError | None:
        """Return why a table is not there, or less of it than there was, once the others hold all that they are to.

        That is what the first look at the sources found. A run that ends with it has nothing left to do then: such a
        table is not brought back by waiting alone, as a broker is. It was tried twice at least: what another driver
        has left open in a progress topic hides a topic's progress until it is shut out.
        """
        tried = (away.error for away in self.away.values() if away.attempt > 1)
        error = next((error for error in tried if isinstance(error, TableWentBack)), None)
        if board.stopping or board.store.error is not None or board.reached is None or board.jobs:
            return None
        there = [o for o in board.outputs.values() if o.state != "failed" and o.name not in self.away]
        return error if all(o.upper >= board.reached for o in there) else None

    def note(
        self, found: Mapping[str, Exception], held: Mapping[str, int], filling: Collection[str], tell: Told
    ) -> None:
        """Take note of what could not be opened, and tell of all that is away.

        held: how far tables were seen to be in earlier runs. filling: those for which files are staged, to be kept.
        """
        now, self._held, self._filling = self._env.monotonic(), held, filling
        for name in found.keys() - self.away.keys():
            self.away[name] = Away.first(found[name], now=now)
        for name, away in self.away.items():
            tell(name, away.error, away.attempt)

    def seen(self, tables: Mapping[str, Table]) -> None:
        """Take note of how far tables are."""
        for name, table in tables.items():
            self.least[name] = max(table.upper, self.least.get(name, 0))

    def forget(self, names: Collection[str]) -> None:
        """Forget outputs that are no more."""
        for known in (self.away, self.least, self._attempts):
            for name in known.keys() & names:
                del known[name]

    def vanished(self, name: str, error: TableWentBack) -> None:
        """Take note of a table that is not there any more, or not as it was."""
        self.least[name] = max(error.evidence["expected"], self.least.get(name, 0))
        self.away[name] = Away.first(error, now=self._env.monotonic())

    def back(self, tell: Told) -> bool:
        """Retry outputs that are due, take in the results of earlier retries, and say whether an output is back.

        Raises what an attempt raised that does not pass by itself.
        """
        now, there = self._env.monotonic(), False
        for name, away in list(self.away.items()):
            if (attempt := self._attempts.get(name)) is None:
                if away.due(now):
                    self._attempts[name] = self._spawn(partial(self._reopen, name))
            elif attempt.done():
                del self._attempts[name]
                error = attempt.exception()
                if error is None:
                    del self.away[name]
                    there = True
                elif isinstance(error, OSError | Transient):
                    self.away[name] = away.again(error, now=now)
                    tell(name, error, away.attempt + 1)
                else:
                    raise error
        return there

    def _reopen(self, name: str) -> None:
        """Open an output to see whether it is there."""
        outputs = self._flow.outputs
        output = OutputId(self._flow.name, name, self._lease.incarnation)
        table = outputs[name].sink.open(output)
        whole(table, output, outputs[name].sink, held=self._held.get(name, 0), least=self.least.get(name, 0))
        # Others may stage beside it, or a fill has: a sweep would take what is yet to be committed; opening sweeps.
        beside = outputs[name].sink.shared and sum(plan.sink.shared for plan in outputs.values()) > 1
        if isinstance(table, Sweeping) and not beside and name not in self._filling:
            table.sweep(self._lease.renew)


def waited_for(scope: Scope, output: str) -> Stream[Committed]:
    """Return the commits of an output that is away: there is none, and there may be one of any epoch."""
    builder = OperatorBuilder(scope, f"{output} away")
    commits: Stream[Committed] = builder.output()
    builder.build(lambda _context: lambda _inputs, _outputs: None)  # it keeps its capability, for ever
    return commits


class Outage:
    """Whether the store of a run is away, since when and why. recognise: sees that it and the lease are ours."""

    def __init__(self, recognise: Callable[[], None], *, env: Env, spawn: Spawn) -> None:
        self.waiting = False
        """Whether the run waits for the store; else it goes on, and it will be seen how far it comes."""
        self.away: Away | None = None
        self.since: datetime | None = None
        self._recognise: Final = recognise
        self._env: Final = env
        self._spawn: Final = spawn
        self._attempt: Future[None] | None = None
        self._reached = (0, 0)
        self._back_at = 0.0
        self._moved_at: float | None = None

    def begin(self, error: Exception, *, at: tuple[int, int]) -> None:
        """Note that somebody ran into it. at: how far the flow is bound and published."""
        now = self._env.monotonic()
        self.since = self.since or self._env.now()
        self.away = Away.first(error, now=now) if self.away is None else self.away.again(error, now=now)
        self.waiting, self._reached = True, at
        moved = isinstance(error, StoreAway) and error.evidence["moved"]
        self._moved_at = None if not moved else now if self._moved_at is None else self._moved_at

    def back(self) -> bool:
        """Try again when it is time, beside the caller; say whether the store takes writes.

        Raises `LeaseLost`, and `StoreReplaced`.
        """
        if self._attempt is None and (self.away is None or self.away.due(self._env.monotonic())):
            self._attempt = self._spawn(self._recognise)
        if self._attempt is not None and self._attempt.done():
            attempt, self._attempt = self._attempt, None
            try:
                attempt.result()
            except Transient as error:
                self.begin(error, at=self._reached)
                if self._moved_at is not None and self._env.monotonic() >= self._moved_at + EXPIRY:
                    raise StoreReplaced(**error.evidence) from None
            else:
                self.waiting, self._back_at, self._moved_at = False, self._env.monotonic(), None
        return not self.waiting

    def lasts(self, *, at: tuple[int, int]) -> bool:
        """Say whether the store is away, or was when the flow came as far as this."""
        if self.away is None or self.waiting:
            return self.waiting
        if at == self._reached and self._env.monotonic() < self._back_at + QUIET:
            return True
        self.away, self.since = None, None
        return False

    def show(self, board: Board) -> None:
        """Show on a board whether the store is away."""
        if self.away is None:
            board.store_back()
        else:
            board.store_away(self.away.error, since=self.since, attempt=self.away.attempt)


def _done(work: Callable[[], Any]) -> Future[Any]:
    """Do the work here and now."""
    future: Future[Any] = Future()
    future.set_result(work())
    return future
