"""Chunks: the records that wait for their epoch. One holds what a transaction did to one table, or a part of it.

A chunk holds the images of rows as they came, or says where in a file they are; tasks take them apart.

    INLINE     images, with an index: of each event the operation, how many bytes, and how many came before it in
               the transaction
    FILED      the index and the images, in a file
    SNAPSHOT   texts of rows as they were at the beginning, in a file; with it how many rows of the table come before,
               and the file of the keys whose rows are left out
    EMPTIED    the table was emptied
    ENDED      why the table is no longer the one that was declared
    UNTOLD     why its rows cannot be followed
    KEPT       chunks that waited: a stream of Arrow, in a file or with it. They have their own places, and are of the
               epoch of this one's

What those three say is JSON: the evidence of an error, which ends the outputs of this table alone.

`_sequence` tells the order: the number of the transaction, and how many bytes of changes came before within it.

Invariant: the rows of chunks depend on the log alone, not on how it was cut into chunks.

>>> chunk = RowsChunk(domain="3", sequence=7, at=0, kind=INLINE, shape="s", count=1, index=b"", data=b"")
>>> batch_of([chunk])["_offset"].to_pylist()
[7]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.mysqlsource import (
    BinlogBroken,
    BinlogRowsUntold,
    BinlogTableChanged,
    BinlogTableTruncated,
    BinlogValueUnfit,
)
from tidegauge.operations import DELETE, INSERT, OP, UPDATE
from tidegauge.sources.database.folder import SnapshotPiece
from tidegauge.sources.database.keys import key_names, untouched
from tidegauge.sources.database.records import INLINE, OURS, filed, joined, runs
from tidegauge.sources.database.sequence import SEQUENCE, sequence
from tidegauge.sources.database.values import values
from tidegauge.sources.metadata import TIMESTAMP
from tidegauge.sources.mysql.cells import ColumnCells, cells_of, layout
from tidegauge.sources.mysql.events import DELETED, UPDATED
from tidegauge.sources.mysql.images import Images, read
from tidegauge.sources.mysql.keyed import key_texts
from tidegauge.sources.mysql.shapes import LoggedTable, ShapeColumn
from tidegauge.sources.mysql.texts import rows_of
from tidegauge.sources.protocol import BadRecord, OnBadRecord

__all__ = [
    "EMPTIED",
    "ENDED",
    "ENDS",
    "FILED",
    "INDEX",
    "KEPT",
    "SNAPSHOT",
    "UNTOLD",
    "RowsChunk",
    "batch_of",
    "decoded",
    "ending",
    "of_first_rows",
]

FILED, SNAPSHOT, EMPTIED, ENDED, UNTOLD, KEPT = range(1, 7)
ENDS: Final = {EMPTIED: BinlogTableTruncated, ENDED: BinlogTableChanged, UNTOLD: BinlogRowsUntold}
INDEX: Final = np.dtype([("before", "<u8"), ("size", "<u4"), ("done", "u1")])
"""Of each event of a chunk: bytes of changes before it, its bytes, and the operation."""
_SCHEMA: Final = pa.schema(
    [
        ("_partition", pa.dictionary(pa.int32(), pa.string())),
        ("_offset", pa.int64()),
        ("_at", pa.int64()),
        ("_kind", pa.int8()),
        ("_shape", pa.dictionary(pa.int32(), pa.string())),
        ("_count", pa.int64()),
        ("_index", pa.binary()),
        ("_data", pa.binary()),
        ("_file", pa.string()),
        ("_from", pa.int64()),
        ("_size", pa.int64()),
    ]
)
_WORDS: Final = pa.array([INSERT, UPDATE, DELETE], pa.string())
_BITS: Final = 40
"""Bits for the bytes of changes within a transaction."""


@dataclass(frozen=True, slots=True)
class RowsChunk:
    """A record. domain, sequence: of the transaction's GTID. at: when it was, in microseconds since 1970. shape: of
    the table, as text. count: of events, or of rows. file, start, size: where its bytes are, if there."""

    domain: str
    sequence: int
    at: int
    kind: int
    shape: str
    count: int
    index: bytes = b""
    data: bytes = b""
    file: str = ""
    start: int = 0
    size: int = 0


def ending(place: tuple[str, int, int], kind: int, **said: str) -> RowsChunk:
    """Return the chunk that ends a table. place: the domain, the number and the time of the transaction.

    >>> ending(("3", 7, 0), ENDED, detail="it is gone").data
    b'{"detail": "it is gone"}'
    """
    return RowsChunk(*place, kind, "", 0, data=json.dumps(said).encode())


def of_first_rows(place: tuple[str, int, int], piece: SnapshotPiece) -> RowsChunk:
    """Return the chunk of a piece of first rows. place: see `ending`."""
    said = json.dumps({"first": piece.first, "without": piece.without}).encode()
    where: dict[str, Any] = {"file": piece.file, "start": piece.start, "size": piece.size}
    return RowsChunk(*place, SNAPSHOT, "", piece.count, data=said, **where)


def batch_of(chunks: Sequence[RowsChunk]) -> pa.RecordBatch:
    """Return chunks of one stream as a batch of records with their places."""
    names = ("domain", "sequence", "at", "kind", "shape", "count", "index", "data", "file", "start", "size")
    arrays = []
    for name, field in zip(names, _SCHEMA, strict=True):
        values = [getattr(one, name) for one in chunks]
        coded = pa.types.is_dictionary(field.type)
        arrays.append(pa.array(values, pa.string()).dictionary_encode() if coded else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def decoded(records: pa.RecordBatch, columns: pa.Schema, table: str, on_bad_record: OnBadRecord) -> pa.RecordBatch:
    """Return the rows of records of one stream, in these columns, in the order of the records.

    Raises `BinlogTableChanged`, `BinlogTableTruncated` and `BinlogRowsUntold`, once all bad records are told;
    `PieceUnreadable`.
    """
    wanted = {field.name: field.type for field in columns if field.name not in OURS}
    parts = []
    over: BinlogTableChanged | BinlogTableTruncated | BinlogRowsUntold | None = None
    for kind, shape, run in runs(records):
        try:
            if kind == KEPT:
                parts += [decoded(one, columns, table, on_bad_record) for one in _kept(run)]
                continue
            if kind in ENDS:
                raise ENDS[kind](table=table, **json.loads(run["_data"][0].as_py()))
            if kind == SNAPSHOT:
                made, bad, of = _first_rows(run, wanted, table)
            else:
                made, bad, of = _changes(run, kind, LoggedTable.decoded(shape), wanted, table)
        except (BinlogTableChanged, BinlogTableTruncated, BinlogRowsUntold) as ended:
            over = over or ended
            continue
        for record, raw, error in bad:
            place = run["_partition"][record].as_py(), run["_offset"][record].as_py()
            on_bad_record(BadRecord(*place, raw, error.code, error.summary))
        taken = pa.array(of)
        made["_partition"] = run["_partition"].take(taken).cast(pa.string())
        made["_offset"] = run["_offset"].take(taken)
        made["_timestamp"] = run["_at"].take(taken).cast(TIMESTAMP)
        parts.append(pa.RecordBatch.from_arrays([made[name] for name in columns.names], schema=columns))
    if over is not None:
        raise over
    return joined(parts, columns)


def _kept(record: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the chunks that a chunk has. Raises `PieceUnreadable`."""
    data = filed(record) if record["_file"][0].as_py() else record["_data"][0].as_py()
    with pa.ipc.open_stream(data) as stream:
        yield from stream


_Bad = list[tuple[int, bytes, BinlogValueUnfit]]


def _changes(
    records: pa.RecordBatch,
    kind: int,
    shape: LoggedTable,
    wanted: Mapping[str, Any],
    table: str,
) -> tuple[dict[str, Any], _Bad, Any]:
    """Return the rows of changes, the changes that make none, and of each row its record."""
    data, index, counts = _events(records, kind)
    layouts = [_layout(column, table) for column in shape.columns]
    ends = np.cumsum(index["size"].astype(np.int64))
    starts = ends - index["size"]
    try:
        found = read(data, starts, ends, layouts)
    except BinlogBroken as broken:
        gtid = f"{records['_partition'][0].as_py()}:{records['_offset'][0].as_py()}"
        if len(counts) > 1:
            gtid += f" or one after it, up to {records['_offset'][-1].as_py()},"
        raise BinlogRowsUntold(table=table, gtid=gtid, problem=broken.evidence["problem"]) from None
    done = index["done"][found.message]
    after = np.flatnonzero((done == UPDATED) & (found.number % 2 == 1))
    if ((done == UPDATED) & (found.number % 2 == 0)).sum() != len(after):
        raise BinlogTableChanged(table=table, detail="an update has a row before it and none after it")
    columns = {column.name: at for at, column in enumerate(shape.columns)}

    def cells(at: int, rows: Any) -> tuple[Any, list[int]]:
        places = ColumnCells(data, found.starts[at][rows], found.sizes[at][rows], found.nulls[at][rows])
        column = shape.columns[at]
        try:
            return cells_of(places, column, wanted[column.name], column.charset)
        except BinlogTableChanged as error:
            raise BinlogTableChanged(table=table, detail=error.evidence["detail"]) from None

    if gone := [name for name in wanted if name not in columns]:
        raise BinlogTableChanged(table=table, detail=f"it has no column {gone[0]!r}")
    moved = _moved(data, found, shape, after)
    keep = np.ones(len(done), np.bool_)
    keep[after[~moved] - 1] = False  # an update that leaves the key as it is makes one row
    word = np.where(done == DELETED, 2, 0)
    word[after[~moved]] = 1
    word[after[moved] - 1] = 2
    rows = np.flatnonzero(keep)
    made: dict[str, Any] = {}
    wrong: dict[int, BinlogValueUnfit] = {}
    change = np.where((done == UPDATED) & (found.number % 2 == 0), np.arange(len(done)) + 1, np.arange(len(done)))
    for name, type_ in wanted.items():
        made[name], unfit = cells(columns[name], rows)
        for at in unfit:
            row, where = rows[at], columns[name]
            start = found.starts[where][row]
            shown = data[start : start + min(found.sizes[where][row], 30)].tobytes()
            error = BinlogValueUnfit(column=name, table=table, value=repr(shown), type=str(type_))
            wrong.setdefault(int(change[row]), error)
    record = np.repeat(np.arange(len(counts)), counts)[found.message]
    sequences = records["_offset"].to_numpy(zero_copy_only=False)[record]
    within = index["before"][found.message].astype(np.int64) + found.begins - starts[found.message]
    made[OP] = _WORDS.take(pa.array(word[rows]))
    made[SEQUENCE] = sequence(sequences[rows], within[rows], bits=_BITS)
    bad = []
    if wrong:
        for one, error in sorted(wrong.items()):
            raw = data[found.begins[one] : int(ends[found.message[one]])][:4096].tobytes()
            bad.append((int(record[one]), raw, error))
        good = ~np.isin(change[rows], list(wrong))
        made = {name: column.filter(pa.array(good)) for name, column in made.items()}
        rows = rows[good]
    return made, bad, record[rows]


def _layout(column: ShapeColumn, table: str) -> tuple[int, int]:
    found = layout(column)
    if found is None:
        detail = f"its column {column.name!r} is stored in a form that is not known (type {column.type})"
        raise BinlogTableChanged(table=table, detail=detail)
    return found


def _moved(data: Any, found: Images, shape: LoggedTable, after: Any) -> Any:
    """Return which updates change the key, as bytes: those of one key are one in every charset."""
    moved = np.zeros(len(after), np.bool_)
    for at in shape.key:
        old, new = found.sizes[at][after - 1], found.sizes[at][after]
        moved |= old != new
        size = int(max(old.max(initial=0), new.max(initial=0)))
        last = len(data) - 1
        for byte in range(size):
            here = data[np.minimum(found.starts[at][after] + byte, last)]
            there = data[np.minimum(found.starts[at][after - 1] + byte, last)]
            moved |= (here != there) & (byte < new)
    return moved


def _events(records: pa.RecordBatch, kind: int) -> tuple[Any, Any, Any]:
    """Return the images of events, their index, and how many events each record has."""
    counts = records["_count"].to_numpy(zero_copy_only=False)
    if kind == INLINE:
        data, index = (b"".join(records[name].to_pylist()) for name in ("_data", "_index"))
    else:
        whole = filed(records)
        index, data = whole[: INDEX.itemsize * int(counts[0])], whole[INDEX.itemsize * int(counts[0]) :]
    return np.frombuffer(data, np.uint8), np.frombuffer(index, INDEX), counts


def _first_rows(record: pa.RecordBatch, wanted: Mapping[str, Any], table: str) -> tuple[dict[str, Any], _Bad, Any]:
    """Return the rows of a piece of a snapshot."""
    texts = rows_of(filed(record))
    if gone := [name for name in wanted if name not in texts.schema.names]:
        raise BinlogTableChanged(table=table, detail=f"its first rows have no column {gone[0]!r}")
    made, wrong = _typed(texts, wanted, table)
    count = texts.num_rows
    said = json.loads(record["_data"][0].as_py() or "{}")
    first = said.get("first", record["_from"][0].as_py())  # earlier versions counted bytes
    keep = np.ones(count, np.bool_)
    if without := said.get("without"):
        key = key_texts({name: made[name] for name in key_names(without)})
        keep = untouched(key, without).to_numpy(zero_copy_only=False)
    made[OP] = pa.repeat(pa.scalar(INSERT, pa.string()), count)
    made[SEQUENCE] = sequence(
        np.full(count, record["_offset"][0].as_py(), np.int64), first + np.arange(count), bits=_BITS
    )
    bad = [
        (0, repr(texts.slice(row, 1).to_pylist()[0]).encode()[:4096], error)
        for row, error in sorted(wrong.items())
        if keep[row]
    ]
    keep[list(wrong)] = False
    if not keep.all():
        made = {name: column.filter(pa.array(keep)) for name, column in made.items()}
    rows = np.flatnonzero(keep)
    return made, bad, np.zeros(len(rows), np.int64)


def _typed(
    texts: pa.RecordBatch, wanted: Mapping[str, Any], table: str
) -> tuple[dict[str, Any], dict[int, BinlogValueUnfit]]:
    made: dict[str, Any] = {}
    wrong: dict[int, BinlogValueUnfit] = {}
    for name, kind in wanted.items():
        column = texts[name]
        if pa.types.is_binary(kind):
            made[name] = column
            continue
        zoned = pa.types.is_timestamp(kind) and kind.tz is not None  # the session writes them in UTC
        made[name], unfit = values(column, pa.timestamp(kind.unit) if zoned else kind)
        made[name] = made[name].cast(kind)
        for row in unfit:
            shown = repr(column[row].as_py()[:60].decode(errors="backslashreplace"))
            wrong.setdefault(row, BinlogValueUnfit(column=name, table=table, value=shown, type=str(kind)))
    return made, wrong
