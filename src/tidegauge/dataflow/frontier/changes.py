"""Times with counts, from which zeros vanish.

Invariant: no count is 0, so an empty batch, which is false, says that nothing changed.

>>> batch = ChangeBatch([(17, 1), (17, -1), (14, -1)])
>>> batch
{14: -1}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

__all__ = ["ChangeBatch"]

T = TypeVar("T")


class ChangeBatch(dict[T, int]):
    """A multiset of changes: items with integer counts, never a zero. Empty is false.

    >>> batch = ChangeBatch([(17, 1), (17, -1), (14, -1)])
    >>> batch
    {14: -1}
    """

    __slots__ = ()

    def __init__(self, changes: Iterable[tuple[T, int]] = ()) -> None:
        super().__init__()
        self.extend(changes)

    def add(self, item: T, delta: int) -> None:
        """Add `delta` to the count of `item`."""
        count = self.get(item, 0) + delta
        if count:
            self[item] = count
        else:
            self.pop(item, None)

    def extend(self, changes: Iterable[tuple[T, int]]) -> None:
        """Add every change, as `add` does, without a call for each: every step of progress comes through here."""
        get = self.get
        for item, delta in changes:
            if count := get(item, 0) + delta:
                self[item] = count
            else:
                self.pop(item, None)

    def merge(self, counts: Mapping[T, int]) -> None:
        """Add counts, none of them 0. Where all items are new here, which is usual, there is nothing to sum up."""
        if self.keys().isdisjoint(counts.keys()):
            self.update(counts)
        else:
            self.extend(counts.items())

    def drain(self) -> list[tuple[T, int]]:
        """Return all changes and forget them."""
        changes = list(self.items())
        self.clear()
        return changes

    def drain_into(self, other: ChangeBatch[T]) -> None:
        """Move all changes into `other`."""
        other.extend(self.drain())
