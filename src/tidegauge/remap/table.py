"""The remap table of one source: the function from epochs to frontiers, and the four questions it answers.

Definition. Let `R(e)` be the frontier bound to epoch `e`. The source at epoch `e` is `T(e)`, the records that are not
beyond `R(e)`: record `(p, n)` is in `T(e)` iff `n < R(e)[p]`, or `R(e)` is sealed. The content of epoch `e` alone is
`T(e)` without `T(e - 1)`. The only demand on `R` is that it never goes back: `d <= e` implies `R(d) <= R(e)`.

Unique mapping. Then membership in `T` is monotone in `e`: a record that is in stays in. So it enters at exactly one
epoch, `epoch_of(p, n) = min {e : n < R(e)[p]}`, and the epochs cut the source into disjoint ranges, `slices`. Nothing
but `R` appears in the definition, so batch sizes, retries and restarts cannot change the answer (law 1).

Inverse. `inverse(e)` is the frontier strictly before `e`, that is `R(e - 1)`. From the definition, `epoch_of(p, n) >=
e iff n >= inverse(e)[p]`: reading on from `inverse(e)` gives exactly the epochs from `e` on, nothing twice and
nothing left out.

Sealing. A sealed frontier is the top of the order (law 5): everything is in, so `epoch_of` has an answer for every
position. It keeps its positions, so no slice grows by it.

Late sources. Epochs are dense and belong to the flow. A source that joined at epoch 57 has the frontier `ORIGIN` at
epochs 0 to 56, and one without a row at an epoch keeps the frontier it had. So `R` is total, begins at epoch 0, and
no record maps to an epoch before the first binding (law 7).

Growth. A table only gains new bindings and is never rebuilt, and its answers stay true. `view()` is the present
table, in O(1): later appends to the original do not show in it, in any thread. One thread appends.

Cost. Let there be n changes of k partitions. `log` keeps them in the order of their epochs, with marks of whole
frontiers; `lookup` keeps them by partition.

    append                          O(changes), amortised         epoch_of    O(log n)
    slices of s changes             O(log n + s log s)            view        O(1)
    frontier_at, inverse            O(log n); O(k) at the first look into it
    load                            O(n) for up to 65,536 partitions, O(n log n) beyond

A change takes 32 bytes in the log, 16 in the index, at most 64 in marks: a million take about 100 MB, whatever k is.
At most 48 more in the tables of the index, which are made when whole columns are first asked for.

Compaction. Epochs below `since` are indistinguishable: positions bound there count as bound at `since`, so `epoch_of`
answers `max(epoch, since)`, an `inverse` at or below `since` knows nothing and returns `ORIGIN` (read all), and a
frontier or a slice below `since` is an error rather than a guess.

>>> table = RemapTable("orders")
>>> table.append(0, Frontier({"p0": 5, "p1": 2}))
>>> table.append(2, Frontier({"p0": 9, "p1": 2}))
>>> table.epoch_of("p0", 4), table.epoch_of("p0", 5)
(0, 2)
>>> table.frontier_at(1), table.inverse(1), table.inverse(0)
(Frontier({'p0': 5, 'p1': 2}), Frontier({'p0': 5, 'p1': 2}), Frontier({}))
>>> [(s.epoch, s.partition, s.lower, s.upper) for s in table.slices(1, 3)]
[(2, 'p0', 5, 9)]
>>> before = table.view(); table.append(3, Frontier({"p0": 9, "p1": 4}))
>>> before.upper, before.frontier, table.frontier
(3, Frontier({'p0': 9, 'p1': 2}), Frontier({'p0': 9, 'p1': 4}))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, index
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import DamagedStore, EpochBelowSince, EpochNotMinted, FrontierRegressed, NotYetBound
from tidegauge.remap.binding import Slice
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.index import NOWHERE, Vector
from tidegauge.remap.log import ChangeLog, Lookup, columns_of_rows, log_of_rows

__all__ = ["LARGEST", "RemapTable"]

LARGEST: Final = 2**63 - 1
"""The largest position and the largest epoch: both are kept as signed 64-bit integers."""

_BY_PLACE = attrgetter("epoch", "partition")


@dataclass(frozen=True, slots=True)
class _Head:
    """All of a table that changes, as one value: so every answer is about one state of it, whatever is appended.

    The table is made of the first `length` changes of its log, the last of them at epoch `last`.
    """

    upper: int
    length: int = 0
    last: int = -1
    sealed_at: int | None = None
    frontier: Frontier = ORIGIN


class RemapTable:
    """One source's bindings, in memory. Grows by `append` and never changes what it has said."""

    __slots__ = ("_head", "_log", "_lookup", "_since", "source")

    def __init__(self, source: str, *, since: int = 0, upper: int = 0) -> None:
        if not 0 <= _integer("since", since) <= _integer("upper", upper) <= LARGEST:
            raise InvalidArgument(parameter="since", value=since, expected=f"an epoch from 0 to the upper, {upper}")
        self.source: Final = source
        self._since: Final = since
        self._head = _Head(upper)
        self._log = ChangeLog()
        self._lookup = Lookup(self._log)

    @classmethod
    def load(
        cls,
        source: str,
        changes: Iterable[tuple[int, str, int]],
        *,
        upper: int,
        since: int = 0,
        sealed_at: int | None = None,
    ) -> RemapTable:
        """Return the table of stored changes `(epoch, partition, position)`, sorted by epoch.

        Changes below `since` count as made at `since`. Raises `DamagedStore` when an epoch or a position goes back,
        or is no integer of 64 bits.
        """
        numbers: dict[str, int] = {}
        rows = [(epoch, numbers.setdefault(name, len(numbers)), position) for epoch, name, position in changes]
        columns = columns_of_rows(source, {number: name for name, number in numbers.items()}, [rows] if rows else [])
        return cls.of_columns(source, *columns, upper=upper, since=since, sealed_at=sealed_at)

    @classmethod
    def of_columns(
        cls,
        source: str,
        partitions: Sequence[str],
        epochs: Vector,
        numbers: Vector,
        positions: Vector,
        *,
        upper: int,
        since: int = 0,
        sealed_at: int | None = None,
    ) -> RemapTable:
        """Return the table of stored changes as columns: at `epochs[i]`, `partitions[numbers[i]]` came to
        `positions[i]`. As `load`, for very many."""
        table = cls(source, since=since, upper=upper)
        log = log_of_rows(source, partitions, epochs, numbers, positions, since=since)
        bound = int(log.columns(log.length - 1, log.length)[0, 0]) if log.length else -1
        sealed_at = None if sealed_at is None else max(sealed_at, since)
        last = max(bound, -1 if sealed_at is None else sealed_at)
        if last >= upper:
            raise DamagedStore(source=source, detail=f"epoch {last} is bound, but the timeline ends before {upper}")
        table._log, table._lookup = log, Lookup(log)
        now = Frontier(log.positions_after(log.length), sealed=sealed_at is not None)
        table._head = _Head(upper, log.length, bound, sealed_at, now)
        return table

    def view(self) -> RemapTable:
        """Return the present table, in O(1): later appends to either do not show in the other.

        The first of them that grows goes on with what both share, the others copy it when they grow.
        """
        view = RemapTable(self.source, since=self._since, upper=self._head.upper)
        view._log, view._lookup, view._head = self._log, self._lookup, self._head
        return view

    def append(self, epoch: int, frontier: Frontier) -> None:
        """Bind `epoch` to `frontier`; the epochs from `upper` to it keep the frontier they had.

        Raises `FrontierRegressed` when the frontier is behind the current one, and `InvalidArgument` when the epoch
        is bound already; then nothing has changed. Compares all partitions; see `extend`.
        """
        now = self._head.frontier
        if not frontier.follows(now):
            raise FrontierRegressed(source=self.source, detail=f"from {now} to {frontier}")
        moved = {partition: position for partition, (_, position) in frontier.since(now).items()}
        self._bind(epoch, moved, frontier)

    def extend(self, epoch: int, changes: Mapping[str, int], *, sealed: bool = False) -> None:
        """Bind `epoch` to the current frontier with these partitions at their new positions, each beyond its last.

        What `append` does, given the difference alone: costs O(changes), however many partitions there are. Raises
        what `append` raises.
        """
        head = self._head
        Frontier(changes)  # refuses what is no position
        log = self._own_log()
        back = {partition: log.newest(partition) for partition in changes}
        back = {partition: position for partition, position in back.items() if changes[partition] <= position}
        if back or (changes and head.sealed_at is not None):
            where = f"{back}" if head.sealed_at is None else f"the end at epoch {head.sealed_at}"
            raise FrontierRegressed(source=self.source, detail=f"from {where} to {dict(changes)}")
        length = log.length + len(changes)
        end = sealed or head.sealed_at is not None
        self._bind(epoch, changes, Frontier.deferred(partial(log.positions_after, length), sealed=end))

    def advance(self, upper: int) -> None:
        """Say that the epochs below `upper` are bound, and that the source kept its frontier since the last one."""
        if not self._head.upper <= _integer("upper", upper) <= LARGEST:
            raise InvalidArgument(parameter="upper", value=upper, expected=f"an epoch from {self._head.upper} on")
        self._head = replace(self._head, upper=upper)

    @property
    def upper(self) -> int:
        """The epoch after the last bound one: bindings below it are final."""
        return self._head.upper

    @property
    def since(self) -> int:
        """Epochs below this one are indistinguishable."""
        return self._since

    @property
    def sealed_at(self) -> int | None:
        """The epoch from which the source is sealed, or None."""
        return self._head.sealed_at

    @property
    def frontier(self) -> Frontier:
        """Where the source stands now: the frontier of the newest epoch, `ORIGIN` before the first."""
        return self._head.frontier

    def __len__(self) -> int:
        return self._head.length

    def __reduce__(self) -> tuple[Any, ...]:
        """What goes to another process are the columns that a table is loaded from."""
        epochs, numbers, _, positions = self._log.columns(0, len(self))
        columns = (tuple(self._log.names), epochs.copy(), numbers.astype(np.int32), positions.copy())
        made = partial(RemapTable.of_columns, upper=self.upper, since=self._since, sealed_at=self.sealed_at)
        return made, (self.source, *columns)

    def __repr__(self) -> str:
        return f"RemapTable({self.source!r}, {len(self)} changes, since={self._since}, upper={self.upper})"

    def epoch_of(self, partition: str, position: int) -> int:
        """Return the epoch that the record at `position` belongs to: the first whose frontier is beyond it.

        Raises `NotYetBound` when no epoch holds it, `InvalidArgument` for an invalid partition or position.
        """
        if not isinstance(partition, str):
            raise InvalidArgument(parameter="partition", value=partition, expected="a text")
        if _integer("position", position) < 0:
            raise InvalidArgument(parameter="position", value=position, expected="zero or more")
        head, number = self._head, self._log.numbers.get(partition)
        if number is not None:
            epoch = self._lookup.epoch_of(number, min(position, LARGEST))
            if epoch is not None and epoch <= head.last:  # a later one was appended since
                return epoch
        if head.sealed_at is not None:
            return head.sealed_at
        raise NotYetBound(source=self.source, partition=partition, position=position, upper=head.upper)

    def epochs_of(self, partitions: Sequence[str | None], codes: npt.NDArray[Any], positions: Vector) -> Vector:
        """Return `epoch_of(partitions[codes[i]], positions[i])` for every row `i`, and -1 where that is an error.

        Positions are from 0 to 2**63 - 2. See `index` for how, and `reclock.columns` for Arrow's columns. Raises
        `InvalidArgument` for codes that name no partition.
        """
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(partitions):
            raise InvalidArgument(
                parameter="codes", value=int(codes.max()), expected=f"numbers of the {len(partitions)} partitions"
            )
        head, known = self._head, self._log.numbers
        numbers = np.array([known.get(p, -1) if p is not None else -1 for p in partitions], np.int64)
        found = self._lookup.epochs_of(head.length, numbers, codes, positions)
        nowhere = NOWHERE if head.sealed_at is None else head.sealed_at
        if nowhere != NOWHERE or self._log.length != head.length:
            found[(found == NOWHERE) | (found > head.last)] = nowhere
        return found

    def changes_between(self, partition: str, lower: int, upper: int) -> tuple[Vector, Vector]:
        """Return positions and epochs of the changes that brought in the records `[lower, upper)` of a partition.

        A record belongs to the first of them whose position is beyond it; those beyond the last are in no epoch, or
        in that of the seal.
        """
        head, number = self._head, self._log.numbers.get(partition)
        if number is None:
            number = len(self._log.names)
        positions, epochs = self._lookup.between(number, lower, upper)
        seen = int(epochs.searchsorted(head.last, "right"))
        return positions[:seen], epochs[:seen]

    def frontier_at(self, epoch: int) -> Frontier:
        """Return the frontier bound to an epoch. Raises `EpochBelowSince` or `EpochNotMinted`.

        Of an epoch in the past its positions are laid out at the first look.
        """
        head = self._head
        self._check(_integer("epoch", epoch), head.upper - 1)
        if epoch == head.upper - 1:
            return head.frontier
        length = min(self._log.until(epoch + 1), head.length)
        sealed = head.sealed_at is not None and head.sealed_at <= epoch
        if length == head.length and sealed == head.frontier.sealed:
            return head.frontier
        return Frontier.deferred(partial(self._log.positions_after, length), sealed=sealed)

    def inverse(self, epoch: int) -> Frontier:
        """Return the frontier to resume from, to read the epochs from `epoch` on: the bindings strictly before it.

        At or below `since` that is `ORIGIN`. Raises `EpochNotMinted` past `upper`.
        """
        if _integer("epoch", epoch) <= self._since:
            return ORIGIN
        return self.frontier_at(epoch - 1)

    def slices(self, lower: int, upper: int) -> list[Slice]:
        """Return the pinned ranges of the epochs `[lower, upper)`, sorted by epoch, then partition.

        Raises `EpochBelowSince` or `EpochNotMinted` when the epochs are not all there.
        """
        lower, upper = _integer("lower", lower), _integer("upper", upper)
        if lower > upper:
            raise InvalidArgument(parameter="upper", value=upper, expected=f"at least lower, {lower}")
        head, names = self._head, self._log.names
        self._check(lower, head.upper)
        self._check(upper, head.upper)
        first, last = self._log.until(lower), min(self._log.until(upper), head.length)
        rows = self._log.columns(first, last).T.tolist()
        found = [Slice(self.source, epoch, names[number], start, end) for epoch, number, start, end in rows]
        found.sort(key=_BY_PLACE)
        return found

    def moved_from(self, epoch: int) -> int | None:
        """Return the epoch of the first slice from an epoch on, None where the source holds nothing more.

        As quick for a long history as for a short one. Raises `EpochBelowSince` or `EpochNotMinted` as `slices` does.
        """
        head = self._head
        self._check(_integer("epoch", epoch), head.upper)
        first = self._log.until(epoch)
        return int(self._log.columns(first, first + 1)[0, 0]) if first < head.length else None

    def changes(self) -> Iterator[tuple[int, str, int]]:
        """Yield the changes `(epoch, partition, position)` in epoch order: what `load` takes."""
        names = self._log.names
        for epoch, number, _, position in self._log.columns(0, len(self)).T.tolist():
            yield epoch, names[number], position

    def compacted(self, since: int) -> RemapTable:
        """Return this table with the epochs below `since` made indistinguishable."""
        head = self._head
        if not self._since <= _integer("since", since) <= max(head.upper - 1, 0):
            raise InvalidArgument(
                parameter="since", value=since, expected=f"an epoch from {self._since} on, below {head.upper}"
            )
        epochs, numbers, _, positions = self._log.columns(0, head.length)
        return RemapTable.of_columns(
            self.source,
            self._log.names,
            epochs,
            numbers,
            positions,
            upper=head.upper,
            since=since,
            sealed_at=head.sealed_at,
        )

    def _own_log(self) -> ChangeLog:
        """The log with all changes of this table: a copy when another view has gone on with the shared one."""
        if self._log.length != self._head.length:
            self._log = self._log.prefix(self._head.length)
            self._lookup = Lookup(self._log)
        return self._log

    def _bind(self, epoch: int, changes: Mapping[str, int], frontier: Frontier) -> None:
        head = self._head
        if not head.upper <= _integer("epoch", epoch) < LARGEST:
            raise InvalidArgument(parameter="epoch", value=epoch, expected=f"an epoch from {head.upper} on")
        if any(position > LARGEST for position in changes.values()):
            raise InvalidArgument(parameter="position", value=max(changes.values()), expected="at most 2**63 - 1")
        log = self._own_log()
        for partition, position in changes.items():
            self._lookup.append(log.append(epoch, partition, position), epoch, position)
        sealed_at = epoch if frontier.sealed and head.sealed_at is None else head.sealed_at
        last = epoch if changes else head.last
        self._head = _Head(epoch + 1, log.length, last, sealed_at, frontier)

    def _check(self, epoch: int, last: int) -> None:
        if epoch < self._since:
            raise EpochBelowSince(source=self.source, epoch=epoch, since=self._since)
        if epoch > last:
            raise EpochNotMinted(source=self.source, epoch=epoch, upper=self._head.upper)


def _integer(parameter: str, value: int) -> int:
    """Return what can be an epoch or a position: integers of any width, never a number that was rounded."""
    try:
        return index(value)
    except TypeError:
        raise InvalidArgument(parameter=parameter, value=value, expected="an integer") from None
