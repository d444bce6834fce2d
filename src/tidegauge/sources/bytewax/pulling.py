"""A partition of a bytewax source, read by a thread of its own: it may wait in `next_batch` for as long as it likes.

The thread builds the partition from a resume state and calls it as bytewax does: `next_batch` not before
`next_awake`, then `snapshot`. What it reads waits here, each batch with the state after it, until it is dropped. At
most `ROOM` items wait, or one batch. A partition that raises is built again from the state of its last batch, after a
growing delay.

Invariant: `waiting` is what the partition gave after the state that was dropped last, in its order, without a gap.
Another thread calls no method of the partition, ever.

>>> from threading import Condition
>>> class Numbers:
...     def __init__(self, at): self.at = at
...     def next_awake(self): return None
...     def snapshot(self): return self.at
...     def close(self): pass
...     def next_batch(self):
...         if self.at == 4: raise StopIteration
...         self.at += 2
...         return [self.at - 2, self.at - 1]
>>> pull = Pull("p", lambda state: Numbers(state or 0), state=None, told=Connector("it", "Numbers"), news=Condition())
>>> pull.begin()
>>> with pull.news:
...     _ = pull.news.wait_for(lambda: pull.ended, timeout=30)
>>> [(batch.items, batch.state) for batch in pull.waiting]
[([0, 1, 2, 3], 4)]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, Final, Literal

from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.errors.bytewax import PartitionBlocked, PartitionRaised, PartitionStateNotKept
from tidegauge.remap.fromtime.encoding import JsonValue
from tidegauge.sources.bytewax.apart import IN_THREADS, News, PullThreads
from tidegauge.sources.polls.poller import backoff
from tidegauge.sources.polls.states import decoded, encoded

__all__ = ["ROOM", "Batch", "Connector", "Pull"]

ROOM: Final = 131_072
"""Items of a partition that may wait before it is left alone."""

_SMALL: Final = 1_000
"""Items of a batch that takes in no more."""

_NAP: Final = 60.0
"""Seconds after which a partition is asked again when it will have something: its clock may have been set."""

_SHORTEST, _LONGEST = 0.001, 0.05
"""Seconds between two calls of a partition that has nothing and does not say when it will."""


@dataclass(slots=True)
class Batch:
    """Items, and the encoded state after them. Small ones grow until they are shown."""

    items: list[Any]
    state: JsonValue


@dataclass(frozen=True, slots=True)
class Connector:
    """What errors say: the source, and the class of its connector."""

    source: str
    kind: str


@dataclass(eq=False)
class Pull:
    """A partition. Its fields without an underscore are read and changed while `news` is held.

    build: makes the partition of a resume state. state: the encoded one to begin from. stateless: whether it has
    none. since: when its present call began; None where it is idle: it has ended, said that it has nothing, or waits.
    apart: where it runs.
    """

    name: str
    build: Callable[[Any], Any]
    state: JsonValue
    told: Connector
    news: News
    stateless: bool = False
    apart: PullThreads = IN_THREADS
    waiting: deque[Batch] = field(default_factory=deque)
    held: int = 0
    shown: int = 0
    """How many of those that wait were shown, and grow no more."""
    ended: bool = False
    error: TidegaugeError | None = None
    since: float | None = 0.0
    _call: Literal["build_part", "next_awake", "next_batch", "snapshot"] = "build_part"
    _closed: bool = False

    @property
    def busy(self) -> bool:
        """Whether it may give something soon, or has more than there was room for."""
        return self.since is not None or self.held >= ROOM

    @property
    def _about(self) -> dict[str, str]:
        return {"source": self.told.source, "partition": self.name, "connector": self.told.kind}

    def begin(self) -> None:
        """Start the thread, which does not keep the process."""
        self.since = self.apart.monotonic()
        self.apart.begin(f"bytewax-{self.name}", self._work)

    def close(self) -> None:
        """Have the thread end, and close the partition, once it has returned from its present call."""
        with self.news:
            self._closed = True
            self.news.notify_all()

    def first(self, items: int) -> list[Batch]:
        """Return the first batches that wait, with as many items, or one batch; they stay."""
        with self.news:
            held = accumulate(len(batch.items) for batch in self.waiting)
            count = 1 + sum(1 for one in held if one <= items) if self.waiting else 0
            self.shown = count
            return list(islice(self.waiting, count))

    def drop(self, batches: int) -> None:
        """Forget the first batches that wait: they are kept elsewhere."""
        with self.news:
            full = self.held >= ROOM
            for _ in range(batches):
                self.held -= len(self.waiting.popleft().items)
            if full and self.held < ROOM and not self.ended:
                self.since = self.apart.monotonic()  # it goes on, though its thread has not noticed yet
            self.shown = 0
            self.news.notify_all()

    def blocked(self, now: float) -> PartitionBlocked:
        """Return the error that says how long the present call takes."""
        since = now if self.since is None else self.since
        return PartitionBlocked(**self._about, call=self._call, seconds=round(now - since))

    # -- in the thread

    def _work(self) -> None:
        failures = 0
        while not (self.ended or self._closed):
            part, before = None, self.state
            try:
                self._call = "build_part"
                part = self.build(decoded(self.state))
                self._read(part)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is this partition's alone
                failures = 1 if self.state != before else failures + 1
                with self.news:
                    self.error, self.since = self._named(error), None
                    self.news.notify_all()
            if part is not None:
                with suppress(BaseException):  # also `sys.exit()`: the thread is to go on
                    part.close()
            if self.error is not None:
                self._pause(backoff(failures))
                with self.news:
                    self.since = self.apart.monotonic()

    def _read(self, part: Any) -> None:
        """Read until the partition ends, or is closed. Raises what it raises."""
        pause = _SHORTEST
        while not self._closed:
            self._call = "next_awake"
            awake = part.next_awake()
            if awake is not None and (seconds := (awake - self.apart.now()).total_seconds()) > 0:
                self._rest(min(seconds, _NAP))
                continue
            self._call, self.since = "next_batch", self.apart.monotonic()
            try:
                items = list(part.next_batch())
            except StopIteration:
                self._take([], self._snapshot(part), ended=True)
                return
            self._take(items, self._snapshot(part))
            if items:
                pause = _SHORTEST
            elif awake is None:
                self._rest(pause)
                pause = min(2 * pause, _LONGEST)

    def _snapshot(self, part: Any) -> JsonValue:
        if self.stateless:
            return None
        self._call = "snapshot"
        state = part.snapshot()
        if type(state) is int and 0 <= state < 2**63:  # as `encoded` has it; most are
            return state
        try:
            return encoded(state)
        except TypeError as error:
            raise PartitionStateNotKept(**self._about, problem=str(error)) from error

    def _take(self, items: list[Any], state: JsonValue, *, ended: bool = False) -> None:
        """Have a batch wait to be dropped, and wait for room."""
        with self.news:
            quiet = bool(self.waiting) and not ended and bool(items)  # nobody waits for one more batch
            if items or state != self.state:
                if len(self.waiting) > self.shown and len(self.waiting[-1].items) < _SMALL:
                    last = self.waiting[-1]
                    last.items += items
                    last.state = state
                else:
                    self.waiting.append(Batch(items, state))
                self.held += len(items)
                self.state = state
            self.ended, self.error = ended, None
            if ended or not items or self.held >= ROOM:
                self.since, quiet = None, False
            if not quiet:
                self.news.notify_all()
            while self.held >= ROOM and not self._closed and not ended:
                self.news.wait()

    def _rest(self, seconds: float) -> None:
        """Wait, idle, for as long as the partition has nothing."""
        with self.news:
            self.since, self.error = None, None
            self.news.notify_all()
        self._pause(seconds)
        with self.news:
            self.since = self.apart.monotonic()

    def _pause(self, seconds: float) -> None:
        with self.news:
            self.news.wait_for(lambda: self._closed, timeout=seconds)

    def _named(self, error: BaseException) -> TidegaugeError:
        if isinstance(error, PartitionStateNotKept):
            return error
        return PartitionRaised(**self._about, call=self._call, detail=brief(error)[:200])
