"""The capabilities of one output at the elements of a frontier, which go on together.

Invariant: no time of a set is at or before another. To go on from one frontier of `n` times to the next costs about
`n log n`, where the order is `Searchable`.

>>> from tidegauge.dataflow.capability import Account
>>> from tidegauge.dataflow.order import INT
>>> account = Account("shop/remap", 0, INT)
>>> held = CapabilitySet([Capability.initial(account)])
>>> held.downgrade([7]); held.times(), dict(account.changes)
((7,), {7: 1, 0: -1})
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidegauge.dataflow.capability import Account, Capability
from tidegauge.dataflow.frontier import Antichain
from tidegauge.dataflow.order import Time, finder, minimal
from tidegauge.errors.dataflow import NotBeyond

__all__ = ["CapabilitySet"]


class CapabilitySet:
    """Capabilities of one output at the minimal times of all that were inserted. It owns what it is given."""

    __slots__ = ("_held",)

    def __init__(self, capabilities: Iterable[Capability] = ()) -> None:
        given = tuple(capabilities)
        self._held: list[Capability] = []
        wanted: set[Time] = set()
        if given:
            wanted = set(minimal(given[0].account.order, (mine.time for mine in given)))
        for capability in given:
            capability.require()
            if capability.time in wanted:
                wanted.discard(capability.time)
                self._held.append(capability)
            else:
                capability.drop()

    def insert(self, capability: Capability) -> bool:
        """Take over `capability`; drop those at or beyond it. Return False, dropping it, when it adds nothing."""
        capability.require()
        less_equal, time = capability.account.order.less_equal, capability.time
        if any(less_equal(mine.time, time) for mine in self._held):
            capability.drop()
            return False
        beyond = [mine for mine in self._held if less_equal(time, mine.time)]
        if beyond:
            self._held = [mine for mine in self._held if not less_equal(time, mine.time)]
        self._held.append(capability)
        for mine in beyond:
            mine.drop()
        return True

    def times(self) -> tuple[Time, ...]:
        """Return the times in sort order."""
        return tuple(mine.time for mine in self)

    def first(self) -> Capability | None:
        """Return the capability that sorts first, None when there is none."""
        return next(iter(self), None)

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

        What is held at a time that stays is the same capability afterwards. A new time is beyond one that does not
        stay, for it would not be on the frontier together with one that does.
        """
        leaving = {mine.time: mine for mine in self._held}
        times = self._minimal(frontier, leaving)
        staying = [leaving.pop(time, None) for time in times]
        fresh = [time for time, mine in zip(times, staying, strict=True) if mine is None]
        seek = finder(self._held[0].account.order, leaving) if fresh and leaving else leaving.get
        origins: list[Capability] = []
        for time in fresh:
            mine = leaving.get(seek(time))
            if mine is None:
                raise self._refusal(time, "downgrade")
            mine.require()
            origins.append(mine)
        if fresh:
            self._held[0].account.changes.extend([(time, 1) for time in fresh])
        moved = iter([mine.moved(time) for time, mine in zip(fresh, origins, strict=True)])
        self._held = [next(moved) if mine is None else mine for mine in staying]
        for mine in leaving.values():
            mine.drop()

    def _minimal(
        self, frontier: Antichain[Time] | Iterable[Time], held: Mapping[Time, Capability]
    ) -> tuple[Time, ...]:
        """Return the minimal ones of some times, which has been done for an antichain. Raises ForeignTime."""
        if not self._held:
            return tuple(frontier)
        account = self._held[0].account
        if isinstance(frontier, Antichain) and frontier.order == account.order:
            return frontier.minimal
        given = tuple(frontier)
        try:
            times = dict.fromkeys(given)
        except TypeError:  # what has no hash is no time
            for time in given:
                account.require_time(time)
            raise
        fresh = [time for time in times if time not in held]
        for time in fresh:
            account.require_time(time)
        if fresh and len(times) > 1:  # what was held before is beyond nothing new, which is beyond what was held
            seek = finder(account.order, times)
            for time in [time for time in fresh if seek(time) != time]:
                del times[time]
        return tuple(times)

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
        if len(self._held) < 2:
            return iter(tuple(self._held))
        key = self._held[0].account.order.sort_key
        return iter(sorted(self._held, key=lambda mine: key(mine.time)))

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"CapabilitySet({list(self.times())!r})"
