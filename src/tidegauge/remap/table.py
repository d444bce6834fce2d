"""The remap table of one source: the function from epochs to frontiers, and the four questions it answers.

Definition. Let `R(e)` be the frontier bound to epoch `e`. The source at epoch `e` is `T(e)`, the records that are not
beyond `R(e)`: record `(p, n)` is in `T(e)` iff `n < R(e)[p]`, or `R(e)` is sealed. The content of epoch `e` alone is
`T(e)` without `T(e - 1)`. The only demand on `R` is that it never goes back: `d <= e` implies `R(d) <= R(e)`.

Unique mapping. Then membership in `T` is monotone in `e`: a record that is in stays in. So it enters at exactly one
epoch, `epoch_of(p, n) = min {e : n < R(e)[p]}`, and the epochs cut the source into disjoint ranges, `slices`. Nothing
but `R` appears in the definition, so batch sizes, retries and restarts cannot change the answer (law 1).

Inverse. `inverse(e)` is what is in strictly before `e`, that is `R(e - 1)`. From the definition,
`epoch_of(p, n) >= e  iff  n >= inverse(e)[p]`: reading on from `inverse(e)` gives exactly the epochs from `e` on,
nothing twice and nothing left out.

Sealing. A sealed frontier is the top of the order (law 5): everything is in, so `epoch_of` has an answer for every
position. It keeps its positions, so no slice grows by it.

Late sources. Epochs are dense and belong to the flow. A source that joined at epoch 57 has the frontier `ORIGIN` at
epochs 0 to 56, and one without a row at an epoch keeps the frontier it had. So `R` is total, begins at epoch 0, and
no record maps to an epoch before the first binding (law 7).

Compaction. Epochs below `since` are indistinguishable: what was bound there counts as bound at `since`, so
`epoch_of` answers `max(epoch, since)`, an `inverse` at or below `since` knows nothing and says `ORIGIN` (read all),
and a frontier or a slice below `since` is an error rather than a guess.

>>> table = RemapTable("orders")
>>> table.append(0, Frontier({"p0": 5, "p1": 2}))
>>> table.append(2, Frontier({"p0": 9, "p1": 2}))
>>> table.epoch_of("p0", 4), table.epoch_of("p0", 5)
(0, 2)
>>> table.frontier_at(1), table.inverse(1), table.inverse(0)
(Frontier({'p0': 5, 'p1': 2}), Frontier({'p0': 5, 'p1': 2}), Frontier({}))
>>> [(s.epoch, s.partition, s.lower, s.upper) for s in table.slices(1, 3)]
[(2, 'p0', 5, 9)]
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import DamagedStore, EpochBelowSince, EpochNotMinted, FrontierRegressed, NotYetBound
from tidegauge.remap.binding import Slice
from tidegauge.remap.frontier import ORIGIN, Frontier

__all__ = ["LARGEST", "RemapTable"]

LARGEST: Final = 2**63 - 1
"""The largest position and the largest epoch: both are kept as signed 64-bit integers."""

_BY_PLACE = attrgetter("epoch", "partition")


class _Track:
    """One partition's changes: at `epochs[i]` its position became `positions[i]`; both strictly increase."""

    __slots__ = ("epochs", "partition", "positions")

    def __init__(self, partition: str) -> None:
        self.partition: Final = partition
        self.epochs: Final = array("q")
        self.positions: Final = array("q")

    def at(self, epoch: int) -> int:
        """The position at an epoch: that of the last change at or before it, or 0."""
        found = bisect_right(self.epochs, epoch)
        return self.positions[found - 1] if found else 0


class RemapTable:
    """One source's bindings, in memory. Grows by `append` and never changes what it has said.

    Space is O(changes). The log holds, in epoch order, which partition changed and which of that partition's changes
    it was; the tracks hold each partition's changes. So `epoch_of` is one bisection of a track, `slices` two of the
    log. The newest frontier is kept; one in the past takes either the later changes off it or one bisection per
    partition, whichever is less.

    A table belongs to one thread.
    """

    __slots__ = (
        "_frontier",
        "_log_epochs",
        "_log_ordinals",
        "_log_tracks",
        "_sealed_at",
        "_since",
        "_tracks",
        "_upper",
        "source",
    )

    def __init__(self, source: str, *, since: int = 0, upper: int = 0) -> None:
        if not 0 <= since <= upper:
            raise InvalidArgument(parameter="since", value=since, expected=f"an epoch from 0 to the upper, {upper}")
        self.source: Final = source
        self._since: Final = since
        self._upper = upper
        self._sealed_at: int | None = None
        self._frontier = ORIGIN
        self._tracks: Final[dict[str, _Track]] = {}
        self._log_epochs: Final = array("q")
        self._log_tracks: Final[list[_Track]] = []
        self._log_ordinals: Final = array("q")

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

        Changes below `since` count as made at `since`. Raises `DamagedStore` when an epoch or a position goes back.
        """
        table = cls(source, since=since, upper=upper)
        tracks = table._tracks
        log_epoch = table._log_epochs.append
        log_track = table._log_tracks.append
        log_ordinal = table._log_ordinals.append
        newest = since
        for changed_at, partition, position in changes:
            epoch = changed_at if changed_at > since else since
            if epoch < newest:
                raise DamagedStore(source=source, detail=f"epoch {epoch} comes after epoch {newest}")
            newest = epoch
            track = tracks.get(partition)
            if track is None:
                track = tracks[partition] = _Track(partition)
            epochs, positions = track.epochs, track.positions
            if position <= (positions[-1] if positions else 0):
                raise DamagedStore(source=source, detail=f"partition {partition!r} goes back at epoch {epoch}")
            if epochs and epochs[-1] == epoch:
                if epoch != since:
                    raise DamagedStore(source=source, detail=f"partition {partition!r} is twice in epoch {epoch}")
                positions[-1] = position
                continue
            log_epoch(epoch)
            log_track(track)
            log_ordinal(len(epochs))
            epochs.append(epoch)
            positions.append(position)
        table._sealed_at = None if sealed_at is None else max(sealed_at, since)
        last = max(newest if tracks else -1, -1 if table._sealed_at is None else table._sealed_at)
        if last >= upper:
            raise DamagedStore(source=source, detail=f"epoch {last} is bound, but the timeline ends before {upper}")
        now = {partition: track.positions[-1] for partition, track in tracks.items()}
        table._frontier = Frontier(now, sealed=table._sealed_at is not None)
        return table

    def append(self, epoch: int, frontier: Frontier) -> None:
        """Bind `epoch` to `frontier`; the epochs from `upper` to it keep the frontier they had.

        Raises `FrontierRegressed` when the frontier is behind the current one, and `InvalidArgument` when the epoch
        is bound already; then nothing has changed.
        """
        if not self._upper <= epoch < LARGEST:
            raise InvalidArgument(parameter="epoch", value=epoch, expected=f"an epoch from {self._upper} on")
        if not frontier.follows(self._frontier):
            raise FrontierRegressed(source=self.source, detail=f"from {self._frontier} to {frontier}")
        moved = frontier.since(self._frontier)
        if any(position > LARGEST for _, position in moved.values()):
            raise InvalidArgument(parameter="position", value=max(frontier.values()), expected="at most 2**63 - 1")
        for partition, (_, position) in moved.items():
            track = self._tracks.get(partition)
            if track is None:
                track = self._tracks[partition] = _Track(partition)
            self._log_epochs.append(epoch)
            self._log_tracks.append(track)
            self._log_ordinals.append(len(track.epochs))
            track.epochs.append(epoch)
            track.positions.append(position)
        if frontier.sealed and self._sealed_at is None:
            self._sealed_at = epoch
        self._frontier = frontier
        self._upper = epoch + 1

    def advance(self, upper: int) -> None:
        """Say that the epochs below `upper` are bound, and that the source kept its frontier since the last one."""
        if not self._upper <= upper <= LARGEST:
            raise InvalidArgument(parameter="upper", value=upper, expected=f"an epoch from {self._upper} on")
        self._upper = upper

    @property
    def upper(self) -> int:
        """The epoch after the last bound one: bindings below it are final."""
        return self._upper

    @property
    def since(self) -> int:
        """Epochs below this one are indistinguishable."""
        return self._since

    @property
    def sealed_at(self) -> int | None:
        """The epoch from which the source is sealed, or None."""
        return self._sealed_at

    @property
    def frontier(self) -> Frontier:
        """Where the source stands now: the frontier of the newest epoch, `ORIGIN` before the first."""
        return self._frontier

    def __len__(self) -> int:
        return len(self._log_epochs)

    def __repr__(self) -> str:
        return f"RemapTable({self.source!r}, {len(self)} changes, since={self._since}, upper={self._upper})"

    def epoch_of(self, partition: str, position: int) -> int:
        """Return the epoch that the record at `position` belongs to: the first whose frontier is beyond it.

        Raises `NotYetBound` when no epoch holds it.
        """
        if position < 0:
            raise InvalidArgument(parameter="position", value=position, expected="zero or more")
        track = self._tracks.get(partition)
        if track is not None:
            found = bisect_right(track.positions, position)
            if found < len(track.positions):
                return track.epochs[found]
        if self._sealed_at is not None:
            return self._sealed_at
        raise NotYetBound(source=self.source, partition=partition, position=position, upper=self._upper)

    def frontier_at(self, epoch: int) -> Frontier:
        """Return the frontier bound to an epoch. Raises `EpochBelowSince` or `EpochNotMinted`."""
        self._check(epoch, self._upper - 1)
        if epoch == self._upper - 1:
            return self._frontier
        later = bisect_right(self._log_epochs, epoch)
        if len(self) - later < len(self._tracks):
            positions = dict(self._frontier.items())
            for index in range(len(self) - 1, later - 1, -1):
                positions[self._log_tracks[index].partition] = self._before(index)
        else:
            positions = {partition: track.at(epoch) for partition, track in self._tracks.items()}
        return Frontier(positions, sealed=self._sealed_at is not None and self._sealed_at <= epoch)

    def inverse(self, epoch: int) -> Frontier:
        """Return the frontier to resume from, to read the epochs from `epoch` on: the bindings strictly before it.

        At or below `since` that is `ORIGIN`. Raises `EpochNotMinted` past `upper`.
        """
        if epoch <= self._since:
            return ORIGIN
        return self.frontier_at(epoch - 1)

    def slices(self, lower: int, upper: int) -> list[Slice]:
        """Return the pinned ranges of the epochs `[lower, upper)`, sorted by epoch, then partition.

        Raises `EpochBelowSince` or `EpochNotMinted` when the epochs are not all there.
        """
        if lower > upper:
            raise InvalidArgument(parameter="upper", value=upper, expected=f"at least lower, {lower}")
        self._check(lower, self._upper)
        self._check(upper, self._upper)
        first = bisect_left(self._log_epochs, lower)
        last = bisect_left(self._log_epochs, upper, lo=first)
        found = [self._slice(i) for i in range(first, last)]
        found.sort(key=_BY_PLACE)
        return found

    def changes(self) -> Iterator[tuple[int, str, int]]:
        """Yield the changes `(epoch, partition, position)` in epoch order: what `load` takes."""
        for epoch, track, ordinal in zip(self._log_epochs, self._log_tracks, self._log_ordinals, strict=True):
            yield epoch, track.partition, track.positions[ordinal]

    def compacted(self, since: int) -> RemapTable:
        """Return this table with the epochs below `since` made indistinguishable."""
        if not self._since <= since <= max(self._upper - 1, 0):
            raise InvalidArgument(
                parameter="since", value=since, expected=f"an epoch from {self._since} on, below {self._upper}"
            )
        return RemapTable.load(self.source, self.changes(), upper=self._upper, since=since, sealed_at=self._sealed_at)

    def _before(self, index: int) -> int:
        """The position that the change at `index` of the log moved away from."""
        ordinal = self._log_ordinals[index]
        return self._log_tracks[index].positions[ordinal - 1] if ordinal else 0

    def _slice(self, index: int) -> Slice:
        track = self._log_tracks[index]
        upper = track.positions[self._log_ordinals[index]]
        return Slice(self.source, self._log_epochs[index], track.partition, self._before(index), upper)

    def _check(self, epoch: int, last: int) -> None:
        if epoch < self._since:
            raise EpochBelowSince(source=self.source, epoch=epoch, since=self._since)
        if epoch > last:
            raise EpochNotMinted(source=self.source, epoch=epoch, upper=self._upper)
