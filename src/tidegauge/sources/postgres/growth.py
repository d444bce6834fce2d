"""Whether a column that came to a table may be taken on: only where every row of before has null in it.

The log says nothing of values that a column has from the start: of a default, which the server keeps beside the rows
or writes into all of them, or of rows that changed before the column was published. A table by key would lack them.
So a column is taken on only if all of this is so, at one look at the catalog:

    its number is beyond those that the table had at an earlier look    it is new: not renamed, nor hidden before
    no value is kept beside the rows, and it is not generated           no default was in force when it was added
    the rows are stored where they were at that look                    nothing was written into all of them
    no other column was dropped in between                              it is the one that the log tells of
    the publication has no list of columns, then as now                 all changes came with it

The rows of a partitioned table are those of its partitions, which have its columns, and get each new one with it. So
all of this is asked of each partition. One that was not there at the earlier look counts as written anew, unless it
lies where it was made, or is empty.

Invariant: what passes had null in each row until the first change that the log gives with it.

>>> before = TableMark(last=2, stored=16400)
>>> now = TableGrowth(last=3, stored=16400, listed=False, columns={"note": GrownColumn(3, 25, -1, valued=False)})
>>> unfit(before, now, "note", (25, -1)), unfit(before, now, "note", (23, -1))
('', 'its type was changed since it was added')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.sources.postgres.versions import spoken

__all__ = ["GrownColumn", "TableGrowth", "TableMark", "growth", "unfit"]

_GROWTH: Final = """
    SELECT c.relnatts::int4, coalesce(pg_relation_filenode(c.oid), 0)::int8,
           EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                   WHERE p.pubname = %s AND r.prrelid = c.oid AND r.prattrs IS NOT NULL),
           array(SELECT a.attnum::int4 FROM pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attisdropped),
           (SELECT json_agg(json_build_array(a.attname, a.attnum, a.atttypid::int8, a.atttypmod,
                                             a.atthasmissing OR a.attidentity <> '' OR a.attgenerated <> ''
                                             OR EXISTS (SELECT FROM pg_attribute b WHERE b.attrelid = ANY (%s::oid[])
                                                        AND b.attname = a.attname AND b.atthasmissing)))
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
    FROM pg_class c WHERE c.oid = %s AND c.relkind IN ('r', 'p')
"""


@dataclass(frozen=True, slots=True)
class GrownColumn:
    """A column. number: no other one of the table ever has it. type, modifier: as the log tells them.

    valued: whether rows of before have a value that the log does not tell, or the server makes its values.
    """

    number: int
    type: int
    modifier: int
    valued: bool


@dataclass(frozen=True, slots=True)
class TableMark:
    """A table as it was. last: the highest number of a column. stored: where its rows are.

    listed: see `TableGrowth`. parts: where those of its partitions are, by the number of each.
    """

    last: int
    stored: int
    listed: bool = False
    parts: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> TableMark:
        """Return the mark that a file says; earlier versions had none of partitions."""
        return cls(**{**said, "parts": tuple(tuple(one) for one in said.get("parts", ()))})


@dataclass(frozen=True, slots=True)
class TableGrowth:
    """A table in the catalog. listed: whether the publication has a list of its columns. dropped: numbers of columns
    that are gone. parts: of each partition its number, and where its rows are. unmoved: the partitions whose rows are
    where they were written, or that have none."""

    last: int
    stored: int
    listed: bool
    columns: Mapping[str, GrownColumn]
    dropped: tuple[int, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()
    unmoved: frozenset[int] = frozenset()

    @property
    def mark(self) -> TableMark:
        """The mark to compare it with later."""
        return TableMark(self.last, self.stored, self.listed, self.parts)

    def rewritten(self, before: TableMark) -> bool:
        """Whether rows may have been written anew since."""
        known = dict(before.parts)
        moved = any(known[oid] != stored if oid in known else oid not in self.unmoved for oid, stored in self.parts)
        return self.stored != before.stored or moved


def growth(
    cursor: Any, publication: str, table: int, version: int, parts: Mapping[int, tuple[int, bool]]
) -> TableGrowth | None:
    """Look at a table, by its number, in one statement; None where it is gone, or is neither plain nor partitioned.

    version: of the server. parts: of each partition, by its number, where its rows are, and whether it has none.
    """
    row = cursor.execute(spoken(_GROWTH, version), (publication, [*parts], table)).fetchone()
    if row is None:
        return None
    last, stored, listed, dropped, columns = row
    found = {
        name: GrownColumn(number, kind, modifier, valued) for name, number, kind, modifier, valued in columns or ()
    }
    unmoved = frozenset(oid for oid, (file, empty) in parts.items() if empty or file == oid)
    files = tuple((oid, file) for oid, (file, _) in parts.items())
    return TableGrowth(last, stored, listed, found, tuple(dropped), files, unmoved)


def unfit(before: TableMark, now: TableGrowth | None, column: str, kind: Sequence[int]) -> str:
    """Return why a column that the log tells of is not to be taken on, "" if it may be.

    kind: its type and modifier in the log.
    """
    found = None if now is None else now.columns.get(column)
    if now is None or found is None:
        return "it was gone when the catalog was looked at"
    if found.number <= before.last:
        return "the table had it before, under this or another name, and values of then are not known"
    if found.valued:
        return "rows of before have a value in it that no change tells of, such as a default"
    if (found.type, found.modifier) != tuple(kind):
        return "its type was changed since it was added"
    if now.listed or before.listed:
        return "the publication has a list of columns, so changes may have come without it"
    if now.rewritten(before):
        return "all rows of the table were written anew at about that time, perhaps with values in it"
    if any(before.last < number < found.number for number in now.dropped):
        return "another column came and was dropped at about that time"
    return ""
