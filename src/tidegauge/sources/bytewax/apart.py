"""Where the partitions of a bytewax source run, apart from the flow: in threads. A simulation has another place.

Invariant: a partition knows no other thread, lock or clock than those of here.

>>> news, said = IN_THREADS.news(), []
>>> def work():
...     with news:
...         said.append("there")
...         news.notify_all()
>>> IN_THREADS.begin("worker", work)
>>> with news:
...     news.wait_for(lambda: said, timeout=30)
['there']
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Protocol, TypeVar

__all__ = ["IN_THREADS", "News", "PullThreads"]

T = TypeVar("T")


class News(Protocol):
    """A lock, and news for those who wait for any: a `threading.Condition`, as far as a partition needs it."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...  # noqa: D102
    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T: ...  # noqa: D102
    def notify_all(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class PullThreads:
    """Where partitions run.

    Args:
        begin: has a function of a name run beside all others. It does not keep the process.
        news: makes the news of a source.
        monotonic: seconds that never go back.
        now: the wall clock, which `next_awake` goes by.
    """

    begin: Callable[[str, Callable[[], None]], None]
    news: Callable[[], News]
    monotonic: Callable[[], float]
    now: Callable[[], datetime]


def _in_a_thread(name: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=f"tidegauge-{name}", daemon=True).start()


IN_THREADS: Final = PullThreads(_in_a_thread, threading.Condition, time.monotonic, lambda: datetime.now(UTC))
"""In threads of this process, by its clocks."""
