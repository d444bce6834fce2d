"""Hops that give way: they take the processor time that others leave, so a live epoch beside a late job loses little.

The priority of a thread can be lowered, and without privileges nobody can raise it again. So such a hop runs in a
thread that ends with it. Spark's Python worker, which may serve a live epoch next, stays as it was. Only Linux has
priorities of threads; elsewhere the hop runs as any other.

Invariant: what comes out of the hop, values and errors, is what comes out without this, in the same order. When the
caller is done with it, nothing of it goes on.

>>> list(giving_way(iter("tide")))
['t', 'i', 'd', 'e']
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, Literal, ParamSpec, TypeVar

__all__ = ["NICENESS", "giving_way", "paced"]

T = TypeVar("T")
P = ParamSpec("P")

NICENESS: Final = 10
"""Of a thread that gives way. It gets a tenth of what an ordinary one gets of a processor that both want."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """Nothing more comes: all has come, or there was an error."""

    error: BaseException | None


def paced(hop: Callable[P, Iterator[T]], *, late: bool) -> Callable[P, Iterator[T]]:
    """Return a hop as its job is to run it: that of a late job gives way."""

    def slower(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return giving_way(hop(*args, **kwargs))

    return slower if late else hop


def giving_way(items: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields; its code runs in a thread of low priority, while the caller waits for it."""
    made: SimpleQueue[T | _Ended] = SimpleQueue()
    wanted: SimpleQueue[Literal["next", "no more"]] = SimpleQueue()

    def work() -> None:
        _lower_own_priority()
        error: BaseException | None = None
        try:
            while wanted.get() == "next":
                made.put(next(items))
        except StopIteration:
            pass
        except BaseException as raised:  # noqa: BLE001 - raised again where the items are taken
            error = raised
        try:
            if (close := getattr(items, "close", None)) is not None:
                close()
        except BaseException as raised:  # noqa: BLE001 - likewise
            error = error or raised
        made.put(_Ended(error))

    thread = threading.Thread(target=work, name="tidegauge-late")
    thread.start()
    try:
        while True:
            wanted.put("next")
            item = made.get()
            if isinstance(item, _Ended):
                break
            yield item
    finally:
        wanted.put("no more")
        thread.join()
    if item.error is not None:
        raise item.error


def _lower_own_priority() -> None:
    if sys.platform == "linux":
        with suppress(OSError):  # forbidden in some sandboxes
            mine = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, mine, max(NICENESS, os.getpriority(os.PRIO_PROCESS, mine)))
