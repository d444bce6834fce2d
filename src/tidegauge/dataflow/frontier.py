"""A frontier is an antichain: the minimal times that may still come. The empty one means that nothing will.

- `ChangeBatch`: times with counts, from which zeros vanish.
- `Antichain`: an immutable set of times of which none is at or before another.
- `MutableAntichain`: a multiset of times and, kept current, the minimal ones among those with a positive count.
- `TotalMutableAntichain`: the same for total orders, where one time at most is minimal.

Invariant of the mutable ones: `update` returns exactly the difference between the frontier before and after, as
`(time, +1 or -1)` in sort order. Counts may be negative for a while (a message may be seen to be consumed before it
is seen to be sent); a time counts only while its sum is positive.

>>> outstanding = mutable_antichain(INT)
>>> outstanding.update([(1, 1), (1, 1), (4, 1)])
[(1, 1)]
>>> outstanding.update([(1, -2)]), outstanding.elements()
([(1, -1), (4, 1)], (4,))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from tidegauge.dataflow.order import INT, Order

__all__ = [
    "Antichain",
    "ChangeBatch",
    "FrontierView",
    "MutableAntichain",
    "Outstanding",
    "TotalMutableAntichain",
    "mutable_antichain",
]

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
        """Add every change."""
        for item, delta in changes:
            self.add(item, delta)

    def drain(self) -> list[tuple[T, int]]:
        """Return all changes and forget them."""
        changes = list(self.items())
        self.clear()
        return changes

    def drain_into(self, other: ChangeBatch[T]) -> None:
        """Move all changes into `other`."""
        other.extend(self.drain())


class Antichain(Generic[T]):
    """The minimal times among all that were put in. Immutable; equality and hash do not depend on the sequence.

    `less_equal(time)` asks whether some element is at or before `time`: is `time` still possible? `a <= b` asks
    whether `b` has gone at least as far as `a`; so the empty antichain is the greatest.

    >>> Antichain([2, 3, 5]), Antichain([2]) <= Antichain(), Antichain().less_equal(7)
    (Antichain([2]), True, False)
    """

    __slots__ = ("minimal", "order")

    def __init__(self, elements: Iterable[T] = (), order: Order[Any] = INT) -> None:
        self.order = order
        self.minimal: tuple[T, ...] = ()
        for element in elements:
            self.minimal = self.insert(element).minimal

    def insert(self, element: T) -> Antichain[T]:
        """Return the antichain with `element`: this very one when some element is already at or before it."""
        less_equal = self.order.less_equal
        if any(less_equal(x, element) for x in self.minimal):
            return self
        grown: Antichain[T] = Antichain(order=self.order)
        grown.minimal = (*(x for x in self.minimal if not less_equal(element, x)), element)
        return grown

    def elements(self) -> tuple[T, ...]:
        """Return the elements in sort order."""
        return tuple(sorted(self.minimal, key=self.order.sort_key))

    def is_empty(self) -> bool:
        """Whether nothing more will ever come."""
        return not self.minimal

    def less_equal(self, time: T) -> bool:
        """Whether some element is at or before `time`."""
        return any(self.order.less_equal(x, time) for x in self.minimal)

    def less_than(self, time: T) -> bool:
        """Whether some element is strictly before `time`."""
        return any(x != time and self.order.less_equal(x, time) for x in self.minimal)

    def __iter__(self) -> Iterator[T]:
        return iter(self.elements())

    def __len__(self) -> int:
        return len(self.minimal)

    def __contains__(self, time: object) -> bool:
        return time in self.minimal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Antichain) and frozenset(self.minimal) == frozenset(other.minimal)

    def __hash__(self) -> int:
        return hash(frozenset(self.minimal))

    def __le__(self, other: Antichain[T]) -> bool:
        return all(self.less_equal(time) for time in other.minimal)

    def __lt__(self, other: Antichain[T]) -> bool:
        return self != other and self <= other

    def __repr__(self) -> str:
        return f"Antichain({list(self.elements())!r})"


class Outstanding(Protocol[T]):
    """What both mutable antichains can do."""

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

    >>> times = MutableAntichain(INT)
    >>> times.update([(0, 1)]), times.update([(0, -1), (5, 1)]), times.update([(3, 1)])
    ([(0, 1)], [(0, -1), (5, 1)], [(3, 1), (5, -1)])
    """

    __slots__ = ("_counts", "_elements", "_order")

    def __init__(self, order: Order[Any]) -> None:
        self._order = order
        self._counts: dict[T, int] = {}
        self._elements: tuple[T, ...] = ()

    def update(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Add counts; return the change of the frontier as `(time, +1 or -1)` in sort order."""
        counts = self._counts
        dirty = False
        for time, delta in changes:
            count = counts.get(time, 0) + delta
            if count:
                counts[time] = count
            else:
                counts.pop(time, None)
            dirty = dirty or self._matters(time, delta)
        return self._rebuild() if dirty else []

    def _matters(self, time: T, delta: int) -> bool:
        """Whether the frontier may change: not behind an earlier element, nor by removing what is not seen."""
        less_equal = self._order.less_equal
        if any(less_equal(x, time) for x in self._elements):
            return time in self._elements
        return delta > 0

    def _rebuild(self) -> list[tuple[T, int]]:
        less_equal, key, old = self._order.less_equal, self._order.sort_key, self._elements
        new: list[T] = []
        for time in sorted((t for t, n in self._counts.items() if n > 0), key=key):
            if not any(less_equal(x, time) for x in new):
                new.append(time)
        self._elements = tuple(new)
        changed = [(t, -1) for t in old if t not in new] + [(t, 1) for t in new if t not in old]
        return sorted(changed, key=lambda change: key(change[0]))

    def elements(self) -> tuple[T, ...]:
        """Return the frontier in sort order."""
        return self._elements

    def less_equal(self, time: T) -> bool:
        """Whether some element of the frontier is at or before `time`."""
        less_equal = self._order.less_equal
        return any(less_equal(x, time) for x in self._elements)

    def less_than(self, time: T) -> bool:
        """Whether some element of the frontier is strictly before `time`."""
        less_equal = self._order.less_equal
        return any(x != time and less_equal(x, time) for x in self._elements)

    def is_empty(self) -> bool:
        """Whether the frontier is empty."""
        return not self._elements

    def count_for(self, time: T) -> int:
        """Return the sum of counts at exactly `time`."""
        return self._counts.get(time, 0)

    def __len__(self) -> int:
        return len(self._counts)


class TotalMutableAntichain(Generic[T]):
    """The same for a total order whose times Python sorts by itself: one least time, compared directly.

    >>> times = TotalMutableAntichain()
    >>> times.update([(0, 1)]), times.update([(0, -1), (5, 1)]), times.update([(3, 1)])
    ([(0, 1)], [(0, -1), (5, 1)], [(3, 1), (5, -1)])
    """

    __slots__ = ("_counts", "_least")

    def __init__(self) -> None:
        self._counts: dict[T, int] = {}
        self._least: Any = None

    def update(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Add counts; return the change of the frontier as `(time, +1 or -1)` in sort order."""
        counts, least = self._counts, self._least
        dirty = False
        for time, delta in changes:
            count = counts.get(time, 0) + delta
            if count:
                counts[time] = count
            else:
                counts.pop(time, None)
            if least is None:
                dirty = dirty or delta > 0
            elif time <= least and (delta > 0 or time == least):
                dirty = True
        if not dirty:
            return []
        new: Any = None
        for time, count in counts.items():
            if count > 0 and (new is None or time < new):
                new = time
        if new == least:
            return []
        self._least = new
        if least is None:
            return [(new, 1)]
        if new is None:
            return [(least, -1)]
        return [(least, -1), (new, 1)] if least < new else [(new, 1), (least, -1)]

    def elements(self) -> tuple[T, ...]:
        """Return the frontier: one time or none."""
        return () if self._least is None else (self._least,)

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

    >>> type(mutable_antichain(INT)).__name__
    'TotalMutableAntichain'
    """
    return TotalMutableAntichain() if order.total else MutableAntichain(order)


class FrontierView:
    """A frontier to look at, never to change: that of an operator's input, or of a probe.

    Until its dataflow is complete and running it says that everything is still possible.

    >>> view = FrontierView(INT)
    >>> view.elements(), view.less_equal(0), view.is_empty()
    ((0,), True, False)
    """

    __slots__ = ("_order", "_seen")

    def __init__(self, order: Order[Any]) -> None:
        self._order = order
        self._seen: Outstanding[Any] = mutable_antichain(order)
        self._seen.update([(order.minimum, 1)])

    def show(self, seen: Outstanding[Any]) -> None:
        """Look at `seen` from now on."""
        self._seen = seen

    def less_equal(self, time: Any) -> bool:
        """Whether something at `time` may still come: completeness of `time` is `not less_equal(time)`."""
        return self._seen.less_equal(time)

    def less_than(self, time: Any) -> bool:
        """Whether something strictly before `time` may still come."""
        return self._seen.less_than(time)

    def is_empty(self) -> bool:
        """Whether nothing more will ever come."""
        return self._seen.is_empty()

    def elements(self) -> tuple[Any, ...]:
        """Return the frontier's elements in sort order."""
        return self._seen.elements()

    def antichain(self) -> Antichain[Any]:
        """Return the frontier as a value that stays as it is."""
        return Antichain(self.elements(), self._order)

    def __repr__(self) -> str:
        return f"FrontierView({list(self.elements())!r})"
