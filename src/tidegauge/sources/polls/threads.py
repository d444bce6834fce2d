"""The threads of a run's polls: as few as will do, shared by all sources of the flow that are polled.

A thousand addresses a second need no thousand threads: each switch between threads costs about a tenth of what a
request does, and those that stand in each other's way make all of them late. So polls stand in line, and a few
threads take one after the other.

An upstream that hangs holds its thread, and nobody else: one that has been with a poll for long does not count,
and another one takes its place. Where polls wait although the processor has room, as they do for upstreams that are
far away, the threads double. Those without work end.

There is no room where this process uses one core, and where other processes have the cores: it then uses little, and
its threads wake late. More of them would only stand in each other's way.

Invariant: no poll waits behind one that hangs for longer than two lapses and `STUCK`.

>>> wanted(waiting=990, threads=0, stuck=0, share=0.1), wanted(waiting=990, threads=4, stuck=0, share=0.1)
(2, 4)
>>> wanted(waiting=990, threads=4, stuck=0, share=0.95), wanted(waiting=990, threads=4, stuck=3, share=0.95)
(0, 1)
>>> wanted(waiting=990, threads=4, stuck=0, share=0.1, late=0.01), wanted(waiting=9, threads=256, stuck=0, share=0.1)
(0, 0)
>>> with_threads = PollThreads(sources=1)
>>> with_threads(lambda: None).exception(timeout=10.0) is None
True
>>> with_threads.close()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final

__all__ = ["PollThreads", "wanted"]

LAPSE: Final = 0.02
"""Seconds between two looks at the line, while there is one."""
STUCK: Final = 0.25
"""Seconds after which a thread that is still with one poll counts no more."""
IDLE: Final = 10.0
"""Seconds without work after which a thread ends."""
FEW, MOST = 2, 256
"""Threads that are not stuck: how many there may be whatever the processor does, and how many at all."""
BUSY: Final = 0.8
"""The share of one core from which on this process has no room: only one of its threads runs Python at a time."""
LATE: Final = 0.004
"""Seconds. A thread wakes this late where another one has Python to run, or another process the core."""
_LEAST_WAIT: Final = 0.01
"""Seconds below which a look does not wait for a poll at all."""


def wanted(*, waiting: int, threads: int, stuck: int, share: float, late: float = 0.0) -> int:
    """Return how many threads to add while polls wait.

    share: of one core, that the process has used lately. late: how many seconds late a thread woke.
    """
    free = threads - stuck
    if free < FEW:
        return min(waiting, FEW - free)
    if share >= BUSY or late >= LATE:
        return 0
    return max(0, min(waiting, free, MOST - free))


class _Poll(Future[None]):
    """A poll in line or under way. sources: how many share what a look may wait."""

    def __init__(self, job: Callable[[], None], sources: int) -> None:
        super().__init__()
        self.job: Final = job
        self.sources: Final = sources

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if timeout is not None:
            share = timeout / self.sources
            timeout = share if share >= _LEAST_WAIT else 0.0
        return super().exception(timeout)


class PollThreads:
    """Runs polls beside the looks that begin them; a `Beside`. sources: how many share it.

    A look at all of them waits for polls that have just begun, altogether as long as it would for one alone.
    """

    def __init__(self, *, sources: int, processor: Callable[[], float] = time.process_time) -> None:
        self._sources: Final = max(1, sources)
        self._processor: Final = processor
        self._line: Final = SimpleQueue[_Poll | None]()
        self._begun: Final = dict[int, float]()
        """When each thread began with its poll: the threads that have one."""
        self._lock: Final = threading.Lock()
        self._threads = 0
        self._watched = False
        self._closed = False
        self._news: Final = threading.Event()

    def __call__(self, job: Callable[[], None]) -> Future[None]:
        """Let a poll stand in line."""
        poll = _Poll(job, self._sources)
        with self._lock:
            self._line.put(poll)
            self._news.set()
            if not self._threads:
                self._add(1)
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, name="tidegauge-polls", daemon=True).start()
        return poll

    def close(self) -> None:
        """Let the threads end that have no work, and the others after theirs. Does not wait for them."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._line.put(None)
        self._news.set()

    def _add(self, count: int) -> None:
        self._threads += count
        for _ in range(count):
            threading.Thread(target=self._work, name="tidegauge-poll", daemon=True).start()

    def _work(self) -> None:
        """Poll one after the other, as long as there is something to do."""
        me = threading.get_ident()
        while (poll := self._taken()) is not None:
            self._begun[me] = time.monotonic()
            try:
                poll.job()
                poll.set_result(None)
            except BaseException as error:  # noqa: BLE001 - it is the look's to raise
                poll.set_exception(error)
            del poll, self._begun[me]

    def _taken(self) -> _Poll | None:
        """Return the next poll, None when this thread is to end: it does not count any more then."""
        while True:
            try:
                poll = self._line.get(timeout=None if self._closed else IDLE)
            except Empty:
                poll = None
            if poll is not None:
                return poll
            with self._lock:
                if self._closed or self._line.empty():
                    self._threads -= 1
                    return None

    def _watch(self) -> None:
        """Add threads while polls wait behind others. Ends when there was no poll for a while."""
        while self._awaited():
            self._news.clear()
            at, used = time.monotonic(), self._processor()
            time.sleep(LAPSE)
            now = time.monotonic()
            share = (self._processor() - used) / max(now - at, LAPSE)
            late = now - at - LAPSE
            if waiting := self._line.qsize():
                stuck = sum(now - begun > STUCK for begun in self._begun.copy().values())
                with self._lock:
                    self._add(wanted(waiting=waiting, threads=self._threads, stuck=stuck, share=share, late=late))
                    self._news.set()  # to look again

    def _awaited(self) -> bool:
        """Wait for a poll. Whether there is one."""
        self._news.wait(IDLE)
        with self._lock:
            self._watched = self._news.is_set() and not self._closed
            return self._watched
