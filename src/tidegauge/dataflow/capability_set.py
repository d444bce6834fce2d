"""The capabilities of one output at the elements of a frontier, which go on together.

Invariant: no time of a set is at or before another, and they are in sort order. To go on from one frontier of `n`
times to the next costs about `n log n`, where the order is `Searchable`; about `n` where each goes on by itself.

>>> from tidegauge.dataflow.capability import Account
>>> from tidegauge.dataflow.order import INT
>>> account = Account("shop/remap", 0, INT)
>>> held = CapabilitySet([Capability.initial(account)])
>>> held.downgrade([7]); held.times(), dict(account.changes)
((7,), {7: 1, 0: -1})
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator

from tidegauge.dataflow.capability import Account, Capability
from tidegauge.dataflow.frontier import Antichain
from tidegauge.dataflow.order import Time, minimal
from tidegauge.dataflow.order.search import origins
from tidegauge.errors.dataflow import NotBeyond

__all__ = ["CapabilitySet"]


class CapabilitySet:
    """Capabilities of one output at the minimal times of all that were inserted. It owns what it is given."""

    __slots__ = ("_held",)

    def __init__(self, capabilities: Iterable[Capability] = ()) -> None:
        given = tuple(capabilities)
        first: dict[Time, Capability] = {}
        for capability in given:
            capability.require()
            first.setdefault(capability.time, capability)
        least = minimal(given[0].account.order, first) if given else ()
        self._held = [first[time] for time in least]
        staying = set(self._held)
        for capability in given:
            if capability not in staying:
                capability.drop()

    def insert(self, capability: Capability) -> bool:
        """Take over `capability`; drop those at or beyond it. Return False, dropping it, when it adds nothing."""
        capability.require()
        order, time = capability.account.order, capability.time
        if any(order.less_equal(mine.time, time) for mine in self._held):
            capability.drop()
            return False
        beyond = [mine for mine in self._held if order.less_equal(time, mine.time)]
        if beyond:
            self._held = [mine for mine in self._held if not order.less_equal(time, mine.time)]
        insort(self._held, capability, key=lambda mine: order.sort_key(mine.time))
        for mine in beyond:
            mine.drop()
        return True

    def times(self) -> tuple[Time, ...]:
        """Return the times in sort order."""
        return tuple([mine.time for mine in self._held])

    def first(self) -> Capability | None:
        """Return the capability that sorts first, None when there is none."""
        return self._held[0] if self._held else None

    def delayed(self, time: Time) -> Capability:
        """Return a capability at `time`. Raises NotBeyond when nothing in the set is at or before it."""
        found = self.try_delayed(time)
        if found is None:
            raise self._refusal(time, "delayed")
        return found

    def try_delayed(self, time: Time) -> Capability | None:
        """Return a capability at `time`, None when nothing in the set is at or before it."""
        for mine in self._held[:1]:
            mine.account.require_time(time)
        for mine in self._held:
            if mine.account.order.less_equal(mine.time, time):
                return mine.delayed(time)
        return None

    def downgrade(self, frontier: Antichain[Time] | Iterable[Time]) -> None:
        """Go on to `frontier`; the empty one gives up everything. Raises NotBeyond, and then nothing has changed.

        The capability at a time that stays is the same afterwards: nothing else held is at or before that time. A new
        time is beyond one that does not stay, for it would not be on the frontier together with one that does.
        """
        if not self._held:
            for time in frontier:
                raise self._refusal(time, "downgrade")
            return
        before, held, account = self._held, self.times(), self._held[0].account
        times = self._minimal(frontier, account)
        now: list[Capability] = []
        noted: dict[Time, int] = {}
        staying: set[int] = set()
        for time, place in zip(times, origins(account.order, held, times), strict=True):
            if place is None:
                raise self._refusal(time, "downgrade")
            mine = before[place]
            if held[place] == time:
                staying.add(place)
            else:
                mine.require()
                mine = mine.moved(time)
                noted[time] = 1
            now.append(mine)
        leaving = [mine for place, mine in enumerate(before) if place not in staying and mine.held]
        noted.update({mine.time: -1 for mine in leaving})
        account.changes.merge(noted)
        self._held = now
        for mine in leaving:
            mine.end()

    @staticmethod
    def _minimal(frontier: Antichain[Time] | Iterable[Time], account: Account) -> tuple[Time, ...]:
        """Return the minimal ones of some times, which has been done for an antichain. Raises ForeignTime."""
        if isinstance(frontier, Antichain) and frontier.order == account.order:
            return frontier.minimal
        times = tuple(frontier)
        for time in times:
            account.require_time(time)
        return minimal(account.order, times)

    def try_downgrade(self, frontier: Antichain[Time] | Iterable[Time]) -> bool:
        """Go on to `frontier` if all of it is at or beyond the set; return whether it was."""
        try:
            self.downgrade(frontier)
        except NotBeyond:
            return False
        return True

    def drop(self) -> None:
        """Give up everything."""
        self.downgrade(())

    def stamp_for(self, account: Account) -> tuple[Time, ...]:
        """Return the stamp of batches sent with all of it. Raises ForeignCapability, CapabilityGone."""
        return tuple(time for mine in self for time in mine.stamp_for(account))

    def _refusal(self, time: Time, action: str) -> NotBeyond:
        path = self._held[0].account.path if self._held else "an empty capability set"
        return NotBeyond(path=path, held=repr(list(self.times())), wanted=repr(time), action=action)

    def __iter__(self) -> Iterator[Capability]:
        return iter(tuple(self._held))

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"CapabilitySet({list(self.times())!r})"
