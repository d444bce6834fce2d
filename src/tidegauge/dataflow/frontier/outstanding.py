"""Times with counts: changes of them, and the minimal ones of those outstanding, an antichain that moves.

- `ChangeBatch` is a change: times with counts, from which zeros vanish.
- `MutableAntichain` is for any order. With `n` counted times and a frontier of `w`, a change costs O(w), and O(n + w)
  where it takes an element from the frontier, to find what that one was hiding. Many changes in one update of a wide
  frontier cost O((n + w) log (n + w)) together, where the order is `Searchable`.
- `TotalMutableAntichain` is for total orders, where one time at most is minimal. A change costs O(log n).

Invariant: `update` returns exactly the difference between the frontier before and after, as `(time, +1 or -1)` in
sort order. Counts may be negative for a while (a message may be seen to be consumed before it is seen to be sent); a
time is on the frontier only while its count is positive.

>>> from tidegauge.dataflow.order import INT
>>> outstanding = mutable_antichain(INT)
>>> outstanding.update([(1, 1), (1, 1), (4, 1)])
[(1, 1)]
>>> outstanding.update([(1, -2)]), outstanding.elements()
([(1, -1), (4, 1)], (4,))
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, Protocol, TypeVar

from tidegauge.dataflow.order import Order, minimal
from tidegauge.dataflow.order.search import WIDE

__all__ = ["ChangeBatch", "MutableAntichain", "Outstanding", "TotalMutableAntichain", "mutable_antichain"]

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


FEW: Final = 4
"""Up to this many changes of a wide frontier are taken one by one."""


class Outstanding(Protocol[T]):
    """What both mutable antichains can do."""

    @property
    def minimal(self) -> tuple[T, ...]:
        """The frontier in sort order, for the runtime: what `elements` returns, without a call."""
        ...

    def update(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Add counts; return the change of the frontier as `(time, +1 or -1)` in sort order."""
        ...

    def elements(self) -> tuple[T, ...]:
        """Return the frontier in sort order."""
        ...

    def less_equal(self, time: T) -> bool:
        """Whether some element of the frontier is at or before `time`."""
        ...

    def less_than(self, time: T) -> bool:
        """Whether some element of the frontier is strictly before `time`."""
        ...

    def is_empty(self) -> bool:
        """Whether the frontier is empty."""
        ...

    def count_for(self, time: T) -> int:
        """Return the sum of counts at exactly `time`."""
        ...

    def __len__(self) -> int: ...


class MutableAntichain(Generic[T]):
    """Counts of times of any order, and the minimal ones with a positive count. `len` is the number of counted times.

    >>> from tidegauge.dataflow.order import INT
    >>> times = MutableAntichain(INT)
    >>> times.update([(0, 1)]), times.update([(0, -1), (5, 1)]), times.update([(3, 1)])
    ([(0, 1)], [(0, -1), (5, 1)], [(3, 1), (5, -1)])
    """

    __slots__ = ("_counts", "_order", "minimal")

    def __init__(self, order: Order[Any]) -> None:
        self._order = order
        self._counts: dict[T, int] = {}
        self.minimal: tuple[T, ...] = ()

    def update(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Add counts; return the change of the frontier as `(time, +1 or -1)` in sort order."""
        counts, elements = self._counts, self.minimal
        if len(elements) >= WIDE:
            return self._update_wide(changes)
        gained: list[T] = []
        fallen = False
        for time, delta in changes:
            count = counts.get(time, 0) + delta
            if count:
                counts[time] = count
            else:
                counts.pop(time, None)
            if count <= 0:
                fallen = fallen or time in elements
            elif count <= delta and not (elements and self.less_equal(time)):  # there was none before
                gained.append(time)
        if not gained and not fallen:
            return []
        if fallen and len(counts) == len(elements) == 1:  # the usual step: the only time gives way to the next one
            [(old, new)] = zip(elements, counts, strict=True)
            if new != old and counts[new] > 0:
                self.minimal = (new,)
                key = self._order.sort_key
                return [(old, -1), (new, 1)] if key(old) < key(new) else [(new, 1), (old, -1)]
        lost = [time for time in elements if counts.get(time, 0) <= 0] if fallen else []
        if len(gained) < WIDE and not (lost and len(counts) >= WIDE):
            return self._settle(gained, lost)
        return self._settle_anew([time for time in gained if counts.get(time, 0) > 0], lost)

    def _settle(self, gained: list[T], lost: list[T]) -> list[tuple[T, int]]:
        """Take `lost` from the frontier, and let in the minimal times of `gained` and of those that `lost` was
        hiding.

        Whatever else is counted is at or beyond an element that stays.
        """
        less_equal, key, counts = self._order.less_equal, self._order.sort_key, self._counts
        coming = [time for time in gained if counts.get(time, 0) > 0]
        now = list(self.minimal)
        for time in lost:
            now.remove(time)
        if lost and len(counts) > len(now) + len(coming):  # some are hidden
            for x in lost:
                coming += [time for time, count in counts.items() if count > 0 and less_equal(x, time)]
        if len(coming) > 1:
            coming.sort(key=key)  # so none comes before another that it hides
        changed = [(time, -1) for time in lost]
        for time in coming:
            if now:
                if any(less_equal(x, time) for x in now):
                    continue
                hidden = [x for x in now if less_equal(time, x)]
                if hidden:
                    now = [x for x in now if x not in hidden]
                    changed += [(x, -1) for x in hidden]
            insort(now, time, key=key)
            changed.append((time, 1))
        self.minimal = tuple(now)
        if len(changed) > 1:
            changed.sort(key=lambda change: key(change[0]))
        return changed

    def _update_wide(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Do the same where comparing each change with each element would cost too much."""
        counts, elements = self._counts, self.minimal
        before: dict[T, int] = {}
        for time, delta in changes:
            count = counts.get(time, 0)
            before.setdefault(time, count)
            if count + delta:
                counts[time] = count + delta
            else:
                counts.pop(time, None)
        gained = [time for time, count in before.items() if count <= 0 < counts.get(time, 0)]
        fallen = {time for time, count in before.items() if counts.get(time, 0) <= 0 < count}
        lost = [time for time in elements if time in fallen] if fallen else []
        if len(gained) + len(lost) < FEW:
            coming = [time for time in gained if not self.less_equal(time)]
            return self._settle(coming, lost) if coming or lost else []
        return self._settle_anew(gained, lost)

    def _settle_anew(self, gained: list[T], lost: list[T]) -> list[tuple[T, int]]:
        """Recompute the frontier from the times that stay on it, those gained, and those that `lost` may have been
        hiding."""
        counts, key, elements = self._counts, self._order.sort_key, self.minimal
        gone = set(lost)
        staying = [time for time in elements if time not in gone] if lost else list(elements)
        coming = gained
        if lost and len(counts) > len(staying) + len(gained):  # some are hidden
            known = set(staying)
            coming = [time for time, count in counts.items() if count > 0 and time not in known]
        self.minimal = now = minimal(self._order, staying + coming)  # sorted pieces: quick to sort
        if len(now) == len(staying) + len(coming):
            changed = [(time, -1) for time in lost] + [(time, 1) for time in coming]
        else:
            before, after = set(elements), set(now)
            changed = [(time, -1) for time in elements if time not in after]
            changed += [(time, 1) for time in now if time not in before]
        changed.sort(key=lambda change: key(change[0]))
        return changed

    def elements(self) -> tuple[T, ...]:
        """Return the frontier in sort order."""
        return self.minimal

    def less_equal(self, time: T) -> bool:
        """Whether some element of the frontier is at or before `time`."""
        less_equal, elements = self._order.less_equal, self.minimal
        if len(elements) == 1:  # a generator would cost more than the comparison
            return less_equal(elements[0], time)
        return any(less_equal(x, time) for x in elements)

    def less_than(self, time: T) -> bool:
        """Whether some element of the frontier is strictly before `time`."""
        less_equal = self._order.less_equal
        return any(x != time and less_equal(x, time) for x in self.minimal)

    def is_empty(self) -> bool:
        """Whether the frontier is empty."""
        return not self.minimal

    def count_for(self, time: T) -> int:
        """Return the sum of counts at exactly `time`."""
        return self._counts.get(time, 0)

    def __len__(self) -> int:
        return len(self._counts)


class TotalMutableAntichain(Generic[T]):
    """The same for a total order whose times Python sorts by itself: one least time, compared directly.

    A heap has every time with a positive count, the least one at its top. A time whose count falls stays in the heap
    until it comes to the top, or until such times are the most of it.

    >>> times = TotalMutableAntichain()
    >>> times.update([(0, 1)]), times.update([(0, -1), (5, 1)]), times.update([(3, 1)])
    ([(0, 1)], [(0, -1), (5, 1)], [(3, 1), (5, -1)])
    """

    __slots__ = ("_counts", "_heap", "_least", "minimal")

    def __init__(self) -> None:
        self._counts: dict[T, int] = {}
        self._heap: list[Any] = []
        self._least: Any = None
        self.minimal: tuple[T, ...] = ()

    def update(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Add counts; return the change of the frontier as `(time, +1 or -1)` in sort order."""
        counts, heap, least = self._counts, self._heap, self._least
        for time, delta in changes:
            count = counts.get(time, 0) + delta
            if count > 0:
                counts[time] = count
                if count <= delta:  # there was none before
                    heappush(heap, time)
            elif count:
                counts[time] = count
            else:
                counts.pop(time, None)
        while heap and counts.get(heap[0], 0) <= 0:
            heappop(heap)
        if len(heap) > 32 and len(heap) > 2 * len(counts):
            heap[:] = [time for time, count in counts.items() if count > 0]
            heapify(heap)
        new: Any = heap[0] if heap else None
        if new == least:
            return []
        self._least = new
        self.minimal = (new,) if heap else ()
        if least is None:
            return [(new, 1)]
        if new is None:
            return [(least, -1)]
        return [(least, -1), (new, 1)] if least < new else [(new, 1), (least, -1)]

    def elements(self) -> tuple[T, ...]:
        """Return the frontier: one time or none."""
        return self.minimal

    def less_equal(self, time: T) -> bool:
        """Whether the least time is at or before `time`."""
        return self._least is not None and self._least <= time

    def less_than(self, time: T) -> bool:
        """Whether the least time is strictly before `time`."""
        return self._least is not None and self._least < time

    def is_empty(self) -> bool:
        """Whether the frontier is empty."""
        return self._least is None

    def count_for(self, time: T) -> int:
        """Return the sum of counts at exactly `time`."""
        return self._counts.get(time, 0)

    def __len__(self) -> int:
        return len(self._counts)


def mutable_antichain(order: Order[T]) -> Outstanding[T]:
    """Return an empty mutable antichain of the kind that fits the order.

    >>> from tidegauge.dataflow.order import INT
    >>> type(mutable_antichain(INT)).__name__
    'TotalMutableAntichain'
    """
    return TotalMutableAntichain() if order.total else MutableAntichain(order)
