"""How others give a new table the rows of one that changes meanwhile and keeps no log: a scan beside a stream.

A table by key is spread over shards. Its changes come epoch by epoch, each the row that a key had and the one that it
has now. Three strategies give a new table its content at any time after they are done:

    snapshot      the table as of an epoch, and then the changes of later epochs; it has to be readable as of then
    arrangement   each shard is scanned in the order of its keys, some rows an epoch, from the table as it is by then.
                  Of an epoch's changes, those of keys that are scanned already are given; the others are not, since
                  the scan has yet to come there, and then finds what they made
    no shuffle    the same with one scan through all shards

The argument for the second: what is given of a key is its row when the scan came by, and every change since. Hence
the view of what is given is the table, restricted to what is scanned.

*A change that moves a row* from one key to another is two, a row that goes and one that comes, and each is judged by
its own key: one of them may be given, and not the other (A5).

Our tables keep a log by epoch, so the first strategy is all that is needed. The others are here as oracles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Key: TypeAlias = int
Row: TypeAlias = tuple[Key, int]
"""A key and a value."""
Given: TypeAlias = tuple[Literal[1, -1], Row]
"""A row that the new table gets, or loses."""


@dataclass(frozen=True)
class Change:
    """What became of a row of a shard: `before` went and `after` came, each perhaps of another key; None for none."""

    shard: int
    before: Row | None
    after: Row | None

    @property
    def parts(self) -> tuple[Given, ...]:
        """The row that goes and the one that comes."""
        gone: tuple[Given, ...] = () if self.before is None else ((-1, self.before),)
        return gone if self.after is None else (*gone, (1, self.after))


Tables: TypeAlias = Mapping[int, Mapping[Key, int]]
"""By shard, the value of each key."""


def after(tables: Tables, changes: Iterable[Change]) -> Tables:
    """Return the shards after an epoch."""
    made = {shard: dict(table) for shard, table in tables.items()}
    for change in changes:
        for sign, (key, value) in change.parts:
            if sign < 0:
                del made[change.shard][key]
            else:
                made[change.shard][key] = value
    return made


def view(given: Iterable[Given]) -> Counter[Row]:
    """Return the rows that are left of those that came and went.

    Raises `ValueError` where one goes that is not there.
    """
    rows: Counter[Row] = Counter()
    for sign, row in given:
        rows[row] += sign
        if rows[row] < 0:
            raise ValueError(f"{row} goes and is not there")
    return +rows


def snapshot(tables: Tables, later: Iterable[Sequence[Change]]) -> list[Given]:
    """Return what the snapshot gives: the table as of an epoch, and the changes of the later ones."""
    given: list[Given] = [(1, row) for table in tables.values() for row in sorted(table.items())]
    return given + [part for changes in later for change in changes for part in change.parts]


@dataclass(frozen=True)
class Scan:
    """How far each shard is scanned: the last key, None before the first. done: the shards that are, to the end."""

    at: Mapping[int, Key | None]
    done: frozenset[int] = frozenset()

    @staticmethod
    def of(shards: Iterable[int]) -> Scan:
        """Return a scan that has not begun."""
        return Scan(dict.fromkeys(shards))

    def passed(self, shard: int, key: Key) -> bool:
        """Whether a key of a shard is scanned."""
        at = self.at[shard]
        return shard in self.done or (at is not None and key <= at)

    def marked(self, changes: Iterable[Change]) -> list[Given]:
        """Return the parts of an epoch's changes that are given."""
        return [(sign, row) for c in changes for sign, row in c.parts if self.passed(c.shard, row[0])]

    def on(self, tables: Tables, budget: int) -> tuple[Scan, list[Given]]:
        """Scan as many rows on, shard by shard, of the tables as they are now; return the rows.

        A shard is done once an epoch's scan has found nothing more in it.
        """
        at, done, given = dict(self.at), set(self.done), list[Given]()
        for shard in sorted(tables):
            if shard in done:
                continue
            left = sorted(key for key in tables[shard] if not self.passed(shard, key))
            taken = left[: budget - len(given)]
            given += [(1, (key, tables[shard][key])) for key in taken]
            at[shard] = taken[-1] if taken else at[shard]
            if not left:
                done.add(shard)
        return replace(self, at=at, done=frozenset(done)), given


def arrangement(
    tables: Tables, later: Sequence[Sequence[Change]], *, budget: int, scan: Scan | None = None
) -> list[Given]:
    """Return what scans beside the stream give: in each epoch the stream's, and then `budget` rows, at least 1.

    When the stream is at rest the scan goes on. scan: how far it is when it begins.
    """
    scan, given, epochs = scan or Scan.of(tables), list[Given](), list(later)
    while epochs or len(scan.done) < len(tables):
        changes = epochs.pop(0) if epochs else ()
        given += scan.marked(changes)
        tables = after(tables, changes)
        scan, rows = scan.on(tables, budget)
        given += rows
    return given


def as_one(tables: Tables) -> Tables:
    """Return all shards as one, as a scan without shards sees them; keys are distinct over all shards."""
    return {0: {key: value for table in tables.values() for key, value in table.items()}}


def in_one(later: Iterable[Sequence[Change]]) -> list[list[Change]]:
    """Return changes as `as_one` has the shards."""
    return [[replace(change, shard=0) for change in changes] for changes in later]
