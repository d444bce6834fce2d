"""What sources that are asked together find at a place where several of them look: each thing once.

A hundred patterns in one landing folder are a hundred sources, and one folder. So what the first of them finds there
is found for all that are asked with it. The sweep makes `Findings` when a look begins, for sources that meet
(`sources.protocol.Overlapping`), and hands them over in `Bound.findings`.

Invariants. Nothing that is found is older than the look. Who waits waits for the very thing that it wants to know, so
it would wait as long if it were asked alone. An `OSError` is found like anything else; after another error the next
one looks for itself.

>>> first = Findings()
>>> second = first.beside()
>>> first.once("names", lambda: ["a", "b"]), second.once("names", list)
(['a', 'b'], ['a', 'b'])
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar, cast

__all__ = ["Findings"]

T = TypeVar("T")


class _Found:
    """One thing, once somebody has found it, and the lock for looking for it."""

    __slots__ = ("done", "error", "lock", "value")

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self.lock = lock
        self.done = False
        self.value: Any = None
        self.error: OSError | None = None

    def look(self, find: Callable[[], Any]) -> bool:
        """Look for it, and return whether somebody else has found it."""
        if self.done:
            return True
        try:
            self.value = find()
        except OSError as error:
            self.error = error
        self.done = True
        return False


class Findings:
    """The findings of one look, as one of its sources gets them. Nothing is pickled: a copy finds all by itself.

    waited: seconds for which this source has waited for what another one was finding.
    """

    def __init__(
        self,
        *,
        lock: Callable[[], AbstractContextManager[Any]] = threading.Lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waited = 0.0
        self._lock: Final = lock
        self._clock: Final = clock
        self._found: dict[Hashable, _Found] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Findings, ()

    def beside(self) -> Findings:
        """Return the same findings for another source."""
        other = Findings(lock=self._lock, clock=self._clock)
        other._found = self._found
        return other

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what somebody has found under a key, or find it.

        Called in many threads at once. Raises what `find` raises.
        """
        found = self._found.get(key)
        if found is None:
            found = self._found.setdefault(key, _Found(self._lock()))
        if not found.done:
            begun = self._clock()
            with found.lock:
                if found.look(find):
                    self.waited += self._clock() - begun
        if found.error is not None:
            raise copy.copy(found.error)  # one of its own for each, as each adds where it was raised
        return cast("T", found.value)
