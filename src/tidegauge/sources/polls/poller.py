"""The poller: asks upstream when it is time, stages the rows, and says how far the log goes.

There is one a source and run. It works in the driver, and nowhere else: `status`, tasks and other flows only read the
log.

    probe    polls are staged and not bound    -> they may be bound, with the state after them
             it is time                        -> a poll begins, in a thread of its own
             the thread has ended with an error, or is overdue -> that error, once all staged polls are bound

A poll begins from a durable state: that of the binding, or that of the last poll which is staged after it. A poll
without rows whose state is another one is not staged: its state is bound by itself, and a crash before that only asks
upstream again.

Invariants. Rows are staged before they can be bound, so upstream is never asked again for staged rows. One poll is
under way at a time. A poll that changes nothing writes nothing, neither to the log nor to the store.

>>> backoff(1), backoff(4), backoff(99)
(1.0, 8.0, 300.0)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.polls import PollOverdue, StateCameBack
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.fromtime.polled import POLLS, SourceState
from tidegauge.sources.polls.bound import digest_of
from tidegauge.sources.polls.log import PollLog, PollManifest
from tidegauge.sources.polls.merging import MergeMemory, Merging
from tidegauge.sources.polls.staged import EPOCH_ROWS, PollSplit

__all__ = [
    "AHEAD",
    "WAIT",
    "Beside",
    "Brought",
    "Fetch",
    "PollStaging",
    "Poller",
    "PollerSetup",
    "backoff",
    "in_a_thread",
]

WAIT: Final = 0.2
"""Seconds that a look waits for a poll that has just begun: most are over by then."""

AHEAD: Final = 100
"""Polls that may be staged and not bound before upstream is left alone."""

Beside: TypeAlias = Callable[[Callable[[], None]], "Future[None]"]
"""Runs a poll beside the look that began it."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What a poll brought, in the declared columns. more: whether upstream has more, to be polled at once."""

    rows: pa.Table
    state: SourceState
    more: bool = False


class Fetch(Protocol):
    """Asks upstream for what came after a state, None at first; None when nothing has changed.

    Raises `Transient`. One with `retry_after`, in seconds, is not tried again before.
    """

    def __call__(self, state: SourceState | None, /) -> Brought | None: ...  # noqa: D102


class PollStaging(Protocol):
    """The log of a source, as far as its poller goes by it. See `StagedPolls`."""

    def log(self, incarnation: int, /) -> PollLog: ...  # noqa: D102
    def ahead(self, bound: Bound, /) -> list[PollManifest]: ...  # noqa: D102
    def read(self, split: PollSplit, /) -> Iterator[pa.RecordBatch]: ...  # noqa: D102
    def observed(  # noqa: D102
        self,
        bound: Bound,
        ahead: Sequence[PollManifest],
        /,
        *,
        now: datetime,
        state: SourceState | None = None,
        more: bool = False,
        coming: bool = False,
    ) -> Observation: ...


def backoff(failures: int) -> float:
    """Return the seconds to leave upstream alone after some failures in a row."""
    return min(300.0, 2.0 ** min(failures - 1, 30))


def pause(every: float, late: float) -> tuple[float, float]:
    """Return the seconds from the beginning of a poll to that of the next one, and how late that is already.

    A poll begins at the first look after it is due, and would come more seldom than it should. The next ones make up
    for that, each by a quarter of the time at most. Polls that were due and never began are left out.

    >>> pause(60.0, 0.5), pause(60.0, 40.0), pause(60.0, 3600.0), pause(60.0, float("inf"))
    ((59.5, 0.0), (45.0, 25.0), (45.0, 0.0), (60.0, 0.0))
    """
    if late == float("inf"):
        return every, 0.0
    sooner = min(max(0.0, late), every / 4)
    return every - sooner, late - sooner if late < every else 0.0


def growing(_error: TidegaugeError | OSError, failures: int) -> float:
    """Return the seconds to leave upstream alone after errors of any kind."""
    return backoff(failures)


def in_a_thread(job: Callable[[], None]) -> Future[None]:
    """Run a job in a thread that does not keep the process: a function that never ends is not waited for."""
    done: Future[None] = Future()

    def work() -> None:
        try:
            job()
            done.set_result(None)
        except BaseException as error:  # noqa: BLE001 - it is the look's to raise
            done.set_exception(error)

    threading.Thread(target=work, name="tidegauge-poll", daemon=True).start()
    return done


def _await(task: Future[None]) -> None:
    """Wait a moment for a poll that is under way."""
    with suppress(TimeoutError):
        task.exception(timeout=WAIT)


@dataclass(frozen=True, kw_only=True, slots=True)
class PollerSetup:
    """What a poller works with. every, timeout: seconds between two polls, and for one; delay: after an error."""

    source: str
    staged: PollStaging
    merging: Merging
    fetch: Fetch
    every: float
    timeout: float
    env: Env
    beside: Beside = in_a_thread
    delay: Callable[[TidegaugeError | OSError, int], float] = growing


@dataclass(slots=True)
class _LogEnd:
    """Where the log is. end: the number of the next poll. before: the digest of the last one. state: after all of it.

    ahead: the polls that are staged and not bound. told: whether the state came without rows. unclear: whether a poll
    may be staged although an error came of that, so that it is looked up before upstream is asked again.
    """

    incarnation: int
    end: int
    before: str
    state: SourceState | None
    ahead: deque[PollManifest] = field(default_factory=deque)
    told: bool = False
    unclear: bool = False

    def goes_with(self, incarnation: int, bound: int) -> bool:
        """Whether a bound position is one that this log has."""
        end = self.end  # first: a poll that is staged meanwhile is ahead before it is the end
        return incarnation == self.incarnation and (self.ahead[0].poll if self.ahead else end) <= bound <= end


class Poller:
    """A source that is polled, in a run. `probe` is called by one thread at a time."""

    def __init__(self, setup: PollerSetup) -> None:
        self._setup: Final = setup
        self._place: _LogEnd | None = None
        self._memory: MergeMemory | None = None
        self._task: Future[None] | None = None
        self._due: float = float("-inf")
        self._begun: float = 0.0
        """When the present call of the function began; the poll's thread says so."""
        self._late: float = 0.0
        """By how many seconds the last poll began after it was due."""
        self._behind: float = 0.0
        """By how many seconds the next poll will be late if it begins when it is due: not made up for yet."""
        self._failures = 0
        self._error: TidegaugeError | OSError | None = None
        self._again = False
        self._closed = False
        self._told: tuple[int, SourceState] | None = None
        """The state that the last poll which is over came to without rows, and where the log was then."""

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how far the log is, and begin a poll where it is time.

        Raises what keeps it from polling: the `Transient` error of the function, `PollOverdue`, an `OSError`; and
        `UpstreamRecreated` or `PollDamaged`.
        """
        clock = self._setup.env.monotonic
        self._hear()
        place = self._settled(bound)
        if self._task is None and clock() >= self._due and len(place.ahead) < AHEAD and not self._closed:
            self._error, self._again, self._begun = None, False, clock()
            self._task = self._setup.beside(lambda: self._poll(place))
            _await(self._task)
            self._hear()
        ahead = list(place.ahead)
        end = self._setup.staged.log(place.incarnation).after(ahead[-1]) if ahead else bound.frontier[POLLS]
        state = self._told_at(end, bound)
        if not ahead and state is None:
            if self._task is not None and clock() - self._begun > self._setup.timeout:
                raise self._overdue()
            if self._task is None and self._error is not None:
                raise self._error
        return self._setup.staged.observed(
            bound, ahead, now=now, state=state, more=self._again, coming=self._task is not None
        )

    def hasten(self, seconds: float) -> None:
        """Let the next poll begin at most so long after the last one has begun, if that one went well."""
        if not self._failures:
            self._due = min(self._due, self._begun + seconds)

    def close(self) -> None:
        """Begin nothing more. A poll that is under way still stages what it has fetched, if its process lives on."""
        self._closed = True

    def _settled(self, bound: Bound) -> _LogEnd:
        """Return where the log is, given the bindings by now. It is looked up once, and when it is another one."""
        place, end = self._place, bound.frontier[POLLS]
        unclear = place is not None and place.unclear and self._task is None
        if place is not None and not unclear and place.goes_with(bound.incarnation, end):
            while place.ahead and place.ahead[0].poll < end:
                place.ahead.popleft()
            return place
        if self._task is not None:  # of another incarnation
            _await(self._task)
            if not self._task.done():
                raise self._overdue()
            self._hear()
        staged = self._setup.staged
        ahead = deque(staged.ahead(bound))
        if place is None:
            staged.log(bound.incarnation).sweep()
        if ahead:
            last, state = ahead[-1], SourceState.decode(ahead[-1].state)
            log = staged.log(bound.incarnation)
            place = _LogEnd(bound.incarnation, log.after(last), last.digest, state, ahead)
        else:
            place = _LogEnd(bound.incarnation, end, digest_of(bound), bound.state)
        self._place, self._memory, self._told = place, None, None
        return place

    def _told_at(self, end: int, bound: Bound) -> SourceState | None:
        """Return the state that came without rows after all polls before `end`, None where it is bound."""
        told = self._told
        return told[1] if told is not None and told[0] == end and told[1] != bound.state else None

    def _overdue(self) -> PollOverdue:
        setup = self._setup
        seconds = int(setup.env.monotonic() - self._begun)
        return PollOverdue(source=setup.source, seconds=seconds, timeout=setup.timeout)

    def _hear(self) -> None:
        """Take in that a poll is over, and decide when the next one begins."""
        if self._task is None or not self._task.done():
            return
        task, self._task, place = self._task, None, self._place
        if place is not None:
            self._told = (place.end, place.state) if place.told and place.state is not None else None
        now = self._setup.env.monotonic()
        error = task.exception()
        if error is None:
            self._failures, self._error = 0, None
            seconds, self._behind = pause(self._setup.every, self._late)
            self._due = float("-inf") if self._again else self._begun + seconds
            return
        if not isinstance(error, TidegaugeError | OSError):
            raise error
        delay = self._setup.delay(error, self._failures + 1)
        self._failures += delay > 0  # an error that nothing waits for makes none wait longer
        self._error, self._behind = error, 0.0
        self._due = now + max(delay, float(getattr(error, "retry_after", 0.0) or 0.0))

    def _poll(self, place: _LogEnd) -> None:
        """Ask upstream, and stage what it has, as long as it has more. Runs beside the flow."""
        setup, rows = self._setup, 0
        self._late = setup.env.monotonic() - self._due + self._behind
        while not self._closed:
            self._begun = setup.env.monotonic()
            brought = setup.fetch(place.state)
            if brought is None:
                return
            rows += self._take(place, brought)
            if not brought.more:
                return
            if rows >= EPOCH_ROWS or len(place.ahead) >= AHEAD:
                self._again = True
                return

    def _take(self, place: _LogEnd, brought: Brought) -> int:
        """Stage what a poll brought, and go on from its state. Return how many rows that were."""
        setup = self._setup
        same = brought.state == place.state or (place.state is None and brought.state.value is None)
        log = setup.staged.log(place.incarnation)
        memory, self._memory = self._memory or self._recalled(log, place), None
        rows = memory.merged(setup.source, brought.rows)
        if not rows.num_rows:
            self._memory = memory
            if not same:
                place.state, place.told = brought.state, True
            return 0
        if same and not (setup.merging.tells_apart and brought.state.value is None):
            raise StateCameBack(source=setup.source, rows=rows.num_rows, kind=brought.state.kind)
        place.unclear = True
        with setup.env.effect("stage poll"):
            found, own = log.publish(place.end, before=place.before, state=brought.state.encode(), rows=rows)
        place.unclear = False
        if own:
            self._memory = memory  # else what the other driver has brought is read from the log
        place.ahead.append(found)  # before `end`: a look meanwhile sees all that is before it
        place.end, place.before, place.told = log.after(found), found.digest, False
        place.state = SourceState.decode(found.state)
        return found.rows

    def _recalled(self, log: PollLog, place: _LogEnd) -> MergeMemory:
        """Read the log for what the merge has to know of it. Raises `PollsForgotten`."""
        return self._setup.merging.memory(self._staged_rows(log, place.end))

    def _staged_rows(self, log: PollLog, end: int) -> Iterator[pa.RecordBatch]:
        setup, digest = self._setup, ""
        for poll in range(end):
            with log.whole(poll, f"merge={setup.merging.how!r} needs"):
                one = log.manifest(poll)
                log.check(poll, "its predecessor", digest, one.before)
                digest = one.digest
                split = PollSplit(
                    epoch=0,
                    partition=POLLS,
                    lower=poll,
                    upper=poll + 1,
                    weight=one.size,
                    path=str(log.path_of(one)),
                    rows=one.rows,
                    schema=setup.merging.schema,
                )
                yield from setup.staged.read(split)
