"""Bindings that a store has forgotten, because an older copy was put in its place; they are kept aside.

Tables may hold such epochs. Then `recover` has to bring their bindings back as they were. What no table holds may be
bound anew, to other records; so an epoch may have been several things in its time.

Invariant: an epoch comes back only as something that it was, and begins where the epochs before it end.

>>> forgotten = Forgotten()
>>> forgotten.keep(3, {"orders": {"orders-0": ("p0", 5, 9)}})
>>> there = {("orders", "p0", 9)}
>>> forgotten.again(3, there, {"orders": {"orders-0": 5}})
{'orders': {'orders-0': ('p0', 5, 9)}}
>>> forgotten.again(3, there, {"orders": {"orders-0": 4}}), forgotten.again(3, {("orders", "p0", 8)}, {})
(None, None)
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

__all__ = ["EpochBindings", "Forgotten", "PlaceRange", "StoredMoves", "moves_of"]

PlaceRange: TypeAlias = tuple[str, int, int]
"""A partition, and the range of it that an epoch has."""
EpochBindings: TypeAlias = Mapping[str, Mapping[str, PlaceRange]]
"""What an epoch is bound to, by source and place."""
StoredMoves: TypeAlias = AbstractSet[tuple[str, str, int]]
"""What an epoch is bound to as a database has it: the partition of a source that comes to a position, and which."""


class Forgotten:
    """What epochs were bound to in stores that gave way to other ones."""

    def __init__(self) -> None:
        self._kept: Final[dict[int, list[EpochBindings]]] = {}

    def keep(self, epoch: int, bound: EpochBindings) -> None:
        """Keep what an epoch was bound to."""
        self._kept.setdefault(epoch, []).append(bound)

    def again(
        self, epoch: int, there: StoredMoves | None, ends: Mapping[str, Mapping[str, int]]
    ) -> EpochBindings | None:
        """Return what an epoch was that is bound again; None if it never was that.

        there: what the store has of it; None where compaction leaves no trace. ends: where the epochs before it end.
        """
        fitting = (
            one
            for one in reversed(self._kept.get(epoch, []))
            if (there is None or moves_of(one) == there) and _continues(one, ends)
        )
        return next(fitting, None)


def moves_of(bound: EpochBindings) -> StoredMoves:
    """Return what an epoch is bound to, without where its ranges begin."""
    return {(source, partition, end) for source, places in bound.items() for partition, _, end in places.values()}


def _continues(bound: EpochBindings, ends: Mapping[str, Mapping[str, int]]) -> bool:
    return all(
        lower == ends.get(source, {}).get(place, lower)
        for source, places in bound.items()
        for place, (_, lower, _) in places.items()
    )
