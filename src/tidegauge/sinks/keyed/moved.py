"""What a change leaves out of a row whose key it changes: taken from the old key to the new one, before the merge.

    UPDATE t SET id = 7, n = 1 WHERE id = 3     leaves out `doc`
    a deletion of 3, *leaving*                  `doc` of the row that it takes away goes on
    a row of 7, *coming*                        its `doc` is that one

Definition. The value of a column that a coming change leaves out is the one that the leaving change right before it
in the order has: that of the change of the old key before, or of the row that the table has (`keyed.filling`). If the
change before is a coming one that leaves it out, too, it is that one's value, and so on.

Law: **runs that are carried have no coming changes, and are else the changes of before.** So the merge knows of one
key at a time, as ever. Runs may lack a change that had the value only if another one of the key and epoch is behind
the leaving one, in a run of another task: a task has its changes in their order. Then the value is not known, and
that is an error (`MovedUnknown`), never a guess.

>>> from tidegauge.leftout import Mark
>>> from tidegauge.sinks.keyed.layout import MARKS
>>> columns = pa.schema([("id", pa.int64()), ("doc", pa.string()), ("n", pa.int64()), *MARKS])
>>> leaving, coming = (Mark(("doc",), moves=how).encode() for how in (LEAVING, COMING))
>>> said = [(3, "a", 1, 0, False, None), (3, None, 4, 0, True, leaving), (7, None, 5, 0, False, coming)]
>>> rows = pa.Table.from_pylist([dict(zip(columns.names, one)) for one in said], columns)
>>> found = origins(rows, ["a", "a", "a"], Ordering(("id",), "n"), table="t")
>>> {row: (one.row, one.held) for (row, name), one in found.items()}
{2: (0, False)}
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidegauge.errors.leftout import LeftOutNull, MovedUnknown
from tidegauge.errors.sinks import StagedFileMissing
from tidegauge.lazy import library
from tidegauge.leftout import COMING, LEAVING, LEFT, masks, moving
from tidegauge.objects.reading import readable
from tidegauge.sinks.attempt import STAGED, AttemptFiles, stem_of
from tidegauge.sinks.commits import staged_status
from tidegauge.sinks.keyed.filling import sources, unknown
from tidegauge.sinks.keyed.folding import ordered, same
from tidegauge.sinks.keyed.layout import AT, GONE, Ordering
from tidegauge.sinks.keyed.runs import RUN_BYTES, RunFile
from tidegauge.sinks.location import inside, staging, writing
from tidegauge.sinks.protocol import StagedFile

__all__ = ["HeldRows", "ValuePlace", "carried", "origins"]

pc: Final[Any] = library("pyarrow.compute")
pq: Final[Any] = library("pyarrow.parquet")

HeldRows: TypeAlias = Callable[[pa.Table, Sequence[str]], Mapping[int, Mapping[str, Any]]]
"""Looks up rows of the table by their keys: by the place of a key, the values of columns with these names."""

_RUN: Final = "run="
_ROW: Final = "row="


class ValuePlace(NamedTuple):
    """Where a value is: in a change, or, with `held`, in the row that the table has of a change's key."""

    row: int
    held: bool


def carried(
    folder: str, files: Sequence[StagedFile], ordering: Ordering, rows_of: HeldRows, *, job: str, table: str
) -> list[StagedFile] | None:
    """Return runs whose rows need no other key's, in place of these; None where those of these need none.

    table: its name in errors. Raises `StagedFileMissing`, `LeftOutUnknown`, `LeftOutNull`, `MovedUnknown`.
    """
    runs = [_RunReading(folder, file, number, ordering) for number, file in enumerate(files)]
    moved = pa.concat_tables([batch for run in runs for batch in run.moving()])
    coming = moving(moved.column(LEFT).combine_chunks(), COMING)
    if not coming.any():
        return None
    leaving = moved.filter(pa.array(moving(moved.column(LEFT).combine_chunks(), LEAVING)))
    changes = ordered(
        pa.concat_tables([batch for run in runs for batch in run.among(leaving, ordering.key)]), ordering
    )
    tasks = [file.path.rpartition("-")[0] for file in files]
    found = origins(changes, [tasks[one] for one in changes.column(_RUN).to_pylist()], ordering, table=table)
    filling = _Carrying(runs, changes, found, ordering, rows_of, table)
    place = staging(folder)
    files_of: AttemptFiles[RunFile] = AttemptFiles(place, f"{STAGED}/{job}", stem=stem_of(job, 0), suffix=".parquet")
    stay = [file for number, file in enumerate(files) if number not in filling.concerned]
    try:
        for number in sorted(filling.concerned):
            for rows in filling.pieces(number):
                with writing(place.root):
                    files_of.begin(partial(RunFile, changes=rows, key=ordering.key))
                files_of.finish()
        return [*stay, *files_of.close()]
    except BaseException:
        files_of.abort()
        raise


def origins(
    rows: pa.Table, tasks: Sequence[str], ordering: Ordering, *, table: str
) -> dict[tuple[int, str], ValuePlace]:
    """Return of each coming change and column that it leaves out where the value is.

    rows: changes in their order, all of the keys that rows leave. tasks: that each is of. Raises `LeftOutUnknown`,
    `MovedUnknown`.
    """
    marks = rows.column(LEFT).combine_chunks()
    leaving, coming = moving(marks, LEAVING), moving(marks, COMING)
    gone = rows.column(GONE).combine_chunks().to_numpy(zero_copy_only=False)
    key = same(rows, ordering.key)
    group = key & same(rows, [AT])
    at, order = rows.column(AT).to_pylist(), [int(one) for one in rows.column(ordering.order or AT).to_pylist()]
    known = {(at[row], order[row]): row for row in np.flatnonzero(leaving).tolist()}
    before = {row: known.get((at[row], order[row] - 1)) for row in np.flatnonzero(coming).tolist()}
    left = masks(marks)
    latest = {
        name: np.where(found, source, -1)
        for name, _, source, found in sources(rows, np.append(~key, True)[: rows.num_rows], leaving)
    }
    made: dict[tuple[int, str], ValuePlace] = {}
    for row in before:
        for name in (one for one, mask in left.items() if mask[row]):
            now: int = row
            while True:
                was = before[now]
                if was is None:
                    raise unknown(rows, now, name, ordering.key, table)
                if _another(group, tasks, was):
                    raise unknown(rows, was, name, ordering.key, table, error=MovedUnknown)
                now = int(latest[name][was])
                if now < 0:
                    made[row, name] = ValuePlace(was, held=True)
                    break
                if gone[now]:
                    raise unknown(rows, was, name, ordering.key, table)
                if not (coming[now] and left[name][now]):
                    made[row, name] = ValuePlace(now, held=False)
                    break
    return made


def _another(group: Any, tasks: Sequence[str], row: int) -> bool:
    """Whether a later change of the key and epoch of a row is of another task. That may have dropped one before."""
    now = row
    while now < len(group) and group[now]:
        now += 1
        if tasks[now] != tasks[row]:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _RunReading:
    """A run that is read for its moves."""

    folder: str
    file: StagedFile
    number: int
    ordering: Ordering

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield its rows, a row group at a time. Raises `StagedFileMissing`."""
        with self._opened() as opened:
            for group in range(opened.num_row_groups):
                table = opened.read_row_group(group, columns=names, use_threads=False).combine_chunks()
                yield from table.to_batches()

    def moving(self) -> Iterator[pa.Table]:
        """Yield the changes that leave keys, and those that come from them."""
        for batch in self._light():
            marks = batch.column(LEFT).combine_chunks()
            yield batch.filter(pa.array(moving(marks, LEAVING) | moving(marks, COMING)))

    def among(self, keys: pa.Table, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the changes that move, those of the keys, and perhaps others."""
        for batch in self._light():
            mask: Any = pa.scalar(True, pa.bool_())  # noqa: FBT003 - a value
            for name in names:
                mask = pc.and_(mask, pc.is_in(batch.column(name), value_set=keys.column(name).combine_chunks()))
            marks = batch.column(LEFT).combine_chunks()
            yield batch.filter(pc.or_(mask, pa.array(moving(marks, COMING))))

    def values(self, name: str, rows: Sequence[int]) -> Any:
        """Return values of a column, in the order of these rows, which are in order."""
        parts, start = list[Any](), 0
        for batch in self.batches([name]):
            first, last = bisect_left(rows, start), bisect_left(rows, start + batch.num_rows)
            parts.append(batch.column(0).take(pa.array([row - start for row in rows[first:last]], pa.int64())))
            start += batch.num_rows
        return pa.chunked_array(parts).combine_chunks()

    def _light(self) -> Iterator[pa.Table]:
        start, order = 0, self.ordering.order
        names: list[str] = [*self.ordering.key, AT, GONE, LEFT]
        names += [] if order is None or order in names else [order]
        for batch in self.batches(names):
            count = batch.num_rows
            table = pa.Table.from_batches([batch])
            if LEFT not in table.column_names:  # as an earlier version wrote it
                table = table.append_column(LEFT, pa.nulls(count, pa.string()))
            table = table.select(names)
            table = table.append_column(_RUN, pa.array(np.full(count, self.number)))
            yield table.append_column(_ROW, pa.array(np.arange(start, start + count)))
            start += count

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        staged_status(self.folder, self.file)
        try:
            with pq.ParquetFile(readable(inside(self.folder, self.file.path))) as opened:
                yield opened
        except pa.ArrowException as error:
            problem = f"is damaged: {' '.join(str(error).split())}"
            raise StagedFileMissing(path=self.file.path, table=self.folder, problem=problem) from error


class _Carrying:
    """The runs with coming changes, as others without. Values of one row group are in memory at once."""

    def __init__(
        self,
        runs: Sequence[_RunReading],
        changes: pa.Table,
        found: Mapping[tuple[int, str], ValuePlace],
        ordering: Ordering,
        rows_of: HeldRows,
        table: str,
    ) -> None:
        self._runs: Final = runs
        self._changes: Final = changes
        self._ordering: Final = ordering
        self._rows_of: Final = rows_of
        self._table: Final = table
        self._run: Final[list[int]] = changes.column(_RUN).to_pylist()
        self._row: Final[list[int]] = changes.column(_ROW).to_pylist()
        self._found: Final[dict[int, dict[int, dict[str, tuple[int, ValuePlace]]]]] = {}
        """By run, row and column, the change that lacks it and the origin."""
        for (change, name), origin in found.items():
            rows = self._found.setdefault(self._run[change], {})
            rows.setdefault(self._row[change], {})[name] = (change, origin)

    @property
    def concerned(self) -> Collection[int]:
        """The numbers of the runs."""
        return self._found.keys()

    def pieces(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a run, filled in, as runs of their own. Raises `LeftOutUnknown`, `LeftOutNull`."""
        waiting, start = list[pa.Table](), 0
        for batch in self._runs[number].batches():
            rows = self._filled(pa.Table.from_batches([batch]), self._found[number], start)
            start += batch.num_rows
            waiting.append(rows)
            if sum(one.nbytes for one in waiting) > RUN_BYTES:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)

    def _filled(
        self, rows: pa.Table, found: Mapping[int, Mapping[str, tuple[int, ValuePlace]]], start: int
    ) -> pa.Table:
        mine = {row: found[row] for row in range(start, start + rows.num_rows) if row in found}
        names = dict.fromkeys(name for one in mine.values() for name in one)
        held = self._held(mine, [*names])
        for name in names:
            wanted = [(row - start, *one[name]) for row, one in mine.items() if name in one]
            field = rows.schema.field(name)
            given, places = [rows.column(name).combine_chunks()], np.arange(rows.num_rows)
            for values, of in self._values(name, field.type, wanted, held):
                places[of] = sum(map(len, given)) + np.arange(len(of))
                given.append(values)
            column = pa.concat_arrays(given).take(pa.array(places))
            rows = rows.set_column(rows.schema.get_field_index(name), field, column)
        whole = np.isin(np.arange(start, start + rows.num_rows), [*mine])
        marks = pc.if_else(pa.array(whole), pa.scalar(None, pa.string()), rows.column(LEFT))
        return rows.set_column(rows.schema.get_field_index(LEFT), rows.schema.field(LEFT), marks)

    def _held(
        self, mine: Mapping[int, Mapping[str, tuple[int, ValuePlace]]], names: Sequence[str]
    ) -> Mapping[int, Mapping[str, Any]]:
        """Look up the rows of the table that are asked for; by change."""
        asked = [*dict.fromkeys(of.row for one in mine.values() for _, of in one.values() if of.held)]
        if not asked:
            return {}
        keys = self._changes.select(list(self._ordering.key)).take(pa.array(asked))
        return {asked[at]: values for at, values in self._rows_of(keys, names).items()}

    def _values(
        self,
        name: str,
        kind: Any,
        wanted: Sequence[tuple[int, int, ValuePlace]],
        held: Mapping[int, Mapping[str, Any]],
    ) -> Iterator[tuple[Any, list[int]]]:
        """Yield values with the rows that they are for. wanted: rows, with their changes and origins."""
        key, table = self._ordering.key, self._table
        from_table = [(row, of.row) for row, _, of in wanted if of.held]
        if lost := [of for _, of in from_table if of not in held]:
            raise unknown(self._changes, lost[0], name, key, table)
        values = pa.array([held[of][name] for _, of in from_table], kind)
        if values.null_count:
            raise unknown(
                self._changes, from_table[values.is_null().index(True).as_py()][1], name, key, table, LeftOutNull
            )
        yield values, [row for row, _ in from_table]
        by_run: dict[int, list[tuple[int, int, int]]] = {}
        for row, _, of in wanted:
            if not of.held:
                by_run.setdefault(self._run[of.row], []).append((self._row[of.row], row, of.row))
        for number, some in by_run.items():
            some.sort()
            values = self._runs[number].values(name, [one for one, _, _ in some]).cast(kind)
            if values.null_count:
                raise unknown(
                    self._changes, some[values.is_null().index(True).as_py()][2], name, key, table, LeftOutNull
                )
            yield values, [row for _, row, _ in some]
