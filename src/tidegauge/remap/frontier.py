"""A frontier says, for every partition of a source, which position comes next.

Law 6: positions are exclusive. `{"p0": 5}` means that records 0..4 of p0 are in. A partition that is not named is
at its origin, 0, whether it exists yet or not; so a frontier is a total function and needs no list of partitions.

As an order, `a <= b` iff every position of `a` is at most that of `b`. A *sealed* frontier is the end (law 5):
nothing more will ever come; it is the top of the order and keeps its positions only to say where the source ended.

>>> a, b = Frontier({"p0": 5}), Frontier({"p0": 5, "p1": 2})
>>> a.less_equal(b), b.less_equal(a), Frontier({"p0": 0}) == Frontier()
(True, False, True)
>>> b.since(a)
{'p1': (0, 2)}
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from typing import Any, Final

__all__ = ["ORIGIN", "Frontier"]


class Frontier(Mapping[str, int]):
    """An immutable mapping from partition to next position, hashable, with `sealed` as the end of the source.

    Positions are non-negative integers in the source's own unit; zeros are dropped so that equality is canonical.
    """

    __slots__ = ("_hash", "_positions", "sealed")

    def __init__(self, positions: Mapping[str, int] | None = None, *, sealed: bool = False) -> None:
        kept = {p: n for p, n in (positions or {}).items() if n != 0}
        for partition, position in kept.items():
            if position < 0:
                raise ValueError(f"position {position} of partition {partition!r} is negative")
        self._positions: Final = kept
        self.sealed: Final = sealed
        self._hash: int | None = None

    def __getitem__(self, partition: str) -> int:
        return self._positions.get(partition, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def items(self) -> ItemsView[str, int]:
        """Return the named partitions with their positions, as a dict's own view (a frontier can be wide)."""
        return self._positions.items()

    def __contains__(self, partition: object) -> bool:
        return partition in self._positions

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frontier):
            return NotImplemented
        return self.sealed == other.sealed and self._positions == other._positions

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.sealed, frozenset(self._positions.items())))
        return self._hash

    def __repr__(self) -> str:
        end = ", sealed=True" if self.sealed else ""
        return f"Frontier({self._positions!r}{end})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_frontier, (dict(self._positions), self.sealed))

    def less_equal(self, other: Frontier) -> bool:
        """Whether everything in by `self` is also in by `other`."""
        if other.sealed or self is other:
            return True
        if self.sealed:
            return False
        at = other._positions.get
        return not any(position > at(partition, 0) for partition, position in self._positions.items())

    def follows(self, earlier: Frontier) -> bool:
        """Whether a source that was at `earlier` can be here now.

        No position goes back, not even under a seal (which `less_equal` would let pass), and nothing follows a seal.
        """
        if self is earlier:
            return True
        if earlier.sealed:
            return self == earlier
        at = self._positions.get
        return not any(position > at(partition, 0) for partition, position in earlier._positions.items())

    def join(self, other: Frontier) -> Frontier:
        """Return the least frontier beyond both: the larger position of each partition."""
        joined = dict(self._positions)
        for partition, position in other._positions.items():
            joined[partition] = max(position, joined.get(partition, 0))
        return Frontier(joined, sealed=self.sealed or other.sealed)

    def meet(self, other: Frontier) -> Frontier:
        """Return the greatest frontier before both: the smaller position of each partition."""
        if self.sealed and not other.sealed:
            return other
        if other.sealed and not self.sealed:
            return self
        shared = {p: min(n, other[p]) for p, n in self._positions.items()}
        return Frontier(shared, sealed=self.sealed)

    def since(self, earlier: Frontier) -> dict[str, tuple[int, int]]:
        """Return the ranges `partition -> (lower, upper)` that are in by `self` and not by `earlier`, sorted."""
        at = earlier._positions.get
        moved = {p: (at(p, 0), n) for p, n in self._positions.items() if n > at(p, 0)}
        return dict(sorted(moved.items()))

    def distance(self, earlier: Frontier) -> int:
        """Return how many positions lie between `earlier` and this frontier."""
        return sum(n - earlier[p] for p, n in self._positions.items() if n > earlier[p])

    def seal(self) -> Frontier:
        """Return this frontier as the end of its source."""
        return Frontier(self._positions, sealed=True)


def _frontier(positions: dict[str, int], sealed: bool) -> Frontier:  # noqa: FBT001 - the shape that pickle calls
    return Frontier(positions, sealed=sealed)


ORIGIN: Final = Frontier()
"""Nothing is in yet."""
