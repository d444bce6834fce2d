"""Staged files into a table, within the transaction of their commit: rows are added, or merged by their keys.

    append    COPY of all rows into the table
    upsert    COPY of the last change of each key into a table of the transaction's own; what such a change leaves out
              is put into it from the row that is there; then DELETE and INSERT of it

Invariant: nothing is seen of it before the transaction ends. Memory is bounded by a batch, or by one part of the keys
(`keyed.merging`). Which change is the last does not depend on how epochs are gathered in commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from psycopg import Cursor, sql

from tidegauge.errors.leftout import LeftOutNull, LeftOutUnknown
from tidegauge.errors.sinks import StagedFileMissing
from tidegauge.lazy import library
from tidegauge.leftout import LEFT, masks
from tidegauge.sinks.attempt import discard
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.keyed.layout import GONE, Keyed
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.moved import carried
from tidegauge.sinks.keyed.planning import SIZES, Merge
from tidegauge.sinks.keyed.touching import run_of
from tidegauge.sinks.location import LocalFiles, inside
from tidegauge.sinks.postgres.catalog import definitions
from tidegauge.sinks.postgres.connection import quoted_name
from tidegauge.sinks.postgres.place import TableName
from tidegauge.sinks.postgres.text import lines
from tidegauge.sinks.protocol import StagedFile

__all__ = ["append", "upsert"]

pq: Final[Any] = library("pyarrow.parquet")
pc: Final[Any] = library("pyarrow.compute")

_BATCH: Final = 16 * 1024
_SHOWN: Final = 100
_PLACE: Final = pa.field("place=", pa.int64())
_KEYS: Final = sql.Identifier("pg_temp", "tidegauge_keys")
_CHANGES: Final = sql.Identifier("pg_temp", "tidegauge_changes")


def append(cursor: Cursor[Any], name: TableName, columns: pa.Schema, folder: str, files: Sequence[StagedFile]) -> int:
    """Add the rows of the files to a table, and return how many there are. Raises `StagedFileMissing`."""
    _copy(cursor, quoted_name(name), columns, (batch for file in files for batch in _batches(folder, file, columns)))
    return sum(file.rows for file in files)


def upsert(
    cursor: Cursor[Any],
    name: TableName,
    rows: pa.Schema,
    layout: Keyed,
    folder: str,
    files: Sequence[StagedFile],
    *,
    job: str,
    partitioned: bool = False,
) -> int:
    """Merge the changes of the files into a table, and return how many rows it has more.

    rows: the columns of the rows that the changes were made of. job: for runs that are staged anew.

    Raises `StagedFileMissing`, `LastUndecided`,
    `LeftOutUnknown`, `LeftOutNull`, `MovedUnknown`.
    """
    columns = layout.columns(rows)
    staged = pa.schema([*columns, pa.field(GONE, pa.bool_()), pa.field(LEFT, pa.string())])
    held = _HeldRows(cursor, name, pa.schema([columns.field(one) for one in layout.key]))
    anew: Sequence[StagedFile] = files
    if any(run_of(folder, file, layout.key).leaves_out for file in files):
        anew = carried(folder, files, layout.ordering(rows), held, job=job, table=str(name)) or files
    paths = tuple(file.path for file in anew)
    task = MergeTask(folder, columns, layout.ordering(rows), Merge((), paths, None, None, 0), SIZES, "", 0)
    cursor.execute(
        sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(
            _CHANGES, sql.SQL(", ").join(definitions(staged))
        )
    )
    gone, left = 0, set[str]()

    def changes() -> Iterator[pa.RecordBatch]:
        nonlocal gone
        for table in task.lasts(str(name)):
            gone += pc.sum(table.column(GONE)).as_py() or 0
            left.update(masks(table.column(LEFT).combine_chunks()))
            yield from table.select(staged.names).to_batches(max_chunksize=_BATCH)

    _copy(cursor, _CHANGES, staged, changes())
    if left:
        _fill(cursor, name, layout.key, sorted(left))
    with suppress(OSError):  # else they are swept another time
        discard(LocalFiles(folder), [file for file in anew if file not in files])
    removed = _delete(cursor, name, layout.key) if gone else 0
    return _insert(cursor, name, columns.names, layout.key, partitioned=partitioned) - removed


def _delete(cursor: Cursor[Any], name: TableName, key: Sequence[str]) -> int:
    statement = sql.SQL("DELETE FROM {} AS held USING {} AS new WHERE new.{} AND {}")
    return cursor.execute(statement.format(quoted_name(name), _CHANGES, sql.Identifier(GONE), _same(key))).rowcount


def _fill(cursor: Cursor[Any], name: TableName, key: Sequence[str], left: Sequence[str]) -> None:
    """Put into changes what they leave out, from the rows that are there.

    Raises `LeftOutUnknown`, `LeftOutNull`.
    """
    parts = {"changes": _CHANGES, "table": quoted_name(name), "left": sql.Identifier(LEFT), "same": _same(key)}
    shown = sql.SQL(", ").join(sql.SQL("new.{}").format(sql.Identifier(one)) for one in (EPOCH, *key))
    first = sql.SQL("SELECT {} FROM {} AS new").format(shown, _CHANGES)

    def check(error: type[LeftOutUnknown | LeftOutNull], column: str, question: sql.Composed) -> None:
        row = cursor.execute(first + question + sql.SQL(" ORDER BY 1 LIMIT 1"), [column]).fetchone()
        if row is not None:
            said = repr(row[1] if len(key) == 1 else row[1:])[:_SHOWN]
            raise error(epoch=row[0], column=column, key=said, table=str(name))

    there = sql.SQL("WHERE new.{left}::jsonb -> 'columns' ? %s AND {same}").format(**parts)
    for column in left:
        parts["column"] = sql.Identifier(column)
        lost = " WHERE new.{left}::jsonb -> 'columns' ? %s AND NOT EXISTS (SELECT FROM {table} AS held WHERE {same})"
        check(LeftOutUnknown, column, sql.SQL(lost).format(**parts))
        empty = sql.SQL(" JOIN {table} AS held ON {same} AND held.{column} IS NULL ").format(**parts)
        check(LeftOutNull, column, empty + there)
        filled = sql.SQL("UPDATE {changes} AS new SET {column} = held.{column} FROM {table} AS held ").format(**parts)
        cursor.execute(filled + there, [column])


@dataclass(frozen=True, slots=True)
class _HeldRows:
    """The rows of a table, looked up by their keys. key: its columns."""

    cursor: Cursor[Any]
    name: TableName
    key: pa.Schema

    def __call__(self, keys: pa.Table, names: Sequence[str]) -> Mapping[int, Mapping[str, Any]]:
        """Return by the places of keys the values of their rows, of columns with these names."""
        columns = self.key.append(_PLACE)
        defined = sql.SQL(", ").join(definitions(columns))
        self.cursor.execute(sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(_KEYS, defined))
        placed = keys.select(self.key.names).append_column(_PLACE, pa.array(range(keys.num_rows), pa.int64()))
        _copy(self.cursor, _KEYS, columns, placed.cast(columns).to_batches(max_chunksize=_BATCH))
        wanted = sql.SQL(", ").join(sql.SQL("held.{}").format(sql.Identifier(one)) for one in names)
        parts = {"place": sql.Identifier(_PLACE.name), "wanted": wanted, "keys": _KEYS, "same": _same(self.key.names)}
        query = sql.SQL("SELECT new.{place}, {wanted} FROM {keys} AS new JOIN {table} AS held ON {same}")
        rows = self.cursor.execute(query.format(**parts, table=quoted_name(self.name))).fetchall()
        self.cursor.execute(sql.SQL("DROP TABLE {}").format(_KEYS))
        return {place: dict(zip(names, values, strict=True)) for place, *values in rows}


def _insert(
    cursor: Cursor[Any], name: TableName, columns: Sequence[str], key: Sequence[str], *, partitioned: bool
) -> int:
    """Insert the rows that are not deletions, or update those of their keys; return how many keys are new."""
    statement = sql.SQL(
        "WITH done AS (INSERT INTO {table} ({columns}) SELECT {columns} FROM {changes} WHERE NOT {gone} "
        "ON CONFLICT ({key}) DO UPDATE SET {anew} RETURNING {new} AS new) SELECT {count} FROM done"
    )
    parts = {
        "table": quoted_name(name),
        "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
        "changes": _CHANGES,
        "gone": sql.Identifier(GONE),
        "key": sql.SQL(", ").join(map(sql.Identifier, key)),
        "anew": sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(one)) for one in columns if one not in key
        ),
    }
    held = sql.SQL("SELECT count(*) FROM {} AS new JOIN {} AS held ON {} WHERE NOT new.{}")
    if partitioned:  # whose rows tell nobody whether they were updated
        counted = held.format(_CHANGES, parts["table"], _same(key), parts["gone"])
        how = {"new": sql.SQL("true"), "count": sql.SQL("count(*) - ({})").format(counted)}
    else:
        how = {"new": sql.SQL("xmax = 0"), "count": sql.SQL("count(*) FILTER (WHERE new)")}
    row = cursor.execute(statement.format(**parts, **how)).fetchone()
    return int(row[0]) if row else 0


def _same(key: Sequence[str]) -> sql.Composed:
    return sql.SQL(" AND ").join(sql.SQL("held.{0} = new.{0}").format(sql.Identifier(one)) for one in key)


def _copy(cursor: Cursor[Any], into: sql.Identifier, columns: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    listed = sql.SQL(", ").join(map(sql.Identifier, columns.names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT text, ENCODING 'UTF8')").format(into, listed)
    with cursor.copy(statement) as copy:
        for batch in batches:
            if batch.num_rows:
                copy.write(lines(batch))


def _batches(folder: str, file: StagedFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(inside(folder, file.path)) as opened:
            yield from opened.iter_batches(batch_size=_BATCH, columns=columns.names, use_threads=False)
    except FileNotFoundError as error:
        raise StagedFileMissing(path=file.path, table=folder, problem="is not there") from error
    except pa.ArrowException as error:
        problem = f"is damaged: {' '.join(str(error).split())}"
        raise StagedFileMissing(path=file.path, table=folder, problem=problem) from error
