"""Work that waits for its time to be complete: time -> (capability, state).

Invariant: each waiting time holds one capability until `ready` hands it out; `ready` hands out exactly the times that
no given frontier can still reach, in sort order. Completeness is about the *inputs*; it says nothing of the
operator's own outputs.

>>> from tidegauge.dataflow.capability import Account
>>> from tidegauge.dataflow.frontier import mutable_antichain
>>> account = Account("shop/count", 0, INT)
>>> stash = Stash(list)
>>> stash.at(3, lambda: Capability.initial(account).delayed(3)).append("ebb")
>>> stash.at(3, lambda: Capability.initial(account).delayed(3)).append("flood")
>>> frontier = mutable_antichain(INT)
>>> _ = frontier.update([(3, 1)])
>>> list(stash.ready([frontier]))
[]
>>> _ = frontier.update([(3, -1), (4, 1)])
>>> [(capability.time, state) for capability, state in stash.ready([frontier])]
[(3, ['ebb', 'flood'])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from tidegauge.dataflow.capability import Capability
from tidegauge.dataflow.order import INT, Order, Time

__all__ = ["Reachable", "Stash"]

S = TypeVar("S")


class Reachable(Protocol):
    """What a stash asks of a frontier."""

    def less_equal(self, time: Time) -> bool:
        """Whether something at `time` may still come."""
        ...


class Stash(Generic[S]):
    """A map from waiting times to a capability and a state each.

    fresh: makes the state of a time that is met first. order: whose `sort_key` decides the sequence of `ready`.
    """

    def __init__(self, fresh: Callable[[], S], *, order: Order[Time] = INT) -> None:
        self._fresh = fresh
        self._key = order.sort_key
        self._waiting: dict[Time, tuple[Capability, S]] = {}

    def at(self, time: Time, capability: Callable[[], Capability]) -> S:
        """Return the state of `time`, made anew with a capability from `capability()` when the time is met first."""
        found = self._waiting.get(time)
        if found is None:
            found = self._waiting[time] = (capability(), self._fresh())
        return found[1]

    def ready(self, frontiers: Iterable[Reachable]) -> Iterator[tuple[Capability, S]]:
        """Yield and forget what is complete by all `frontiers`; the capability is the caller's to use and drop.

        What is put in while this runs is looked at with the next call.
        """
        all_of_them = tuple(frontiers)
        complete = [t for t in self._waiting if not any(f.less_equal(t) for f in all_of_them)]
        for time in sorted(complete, key=self._key):
            yield self._waiting.pop(time)

    def times(self) -> tuple[Time, ...]:
        """Return the waiting times in sort order."""
        return tuple(sorted(self._waiting, key=self._key))

    def __len__(self) -> int:
        return len(self._waiting)
