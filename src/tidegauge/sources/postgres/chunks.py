"""Chunks: the records that wait for their epoch. One is what a transaction changed in one table, or a piece of that.

A chunk holds the messages of the server as they came, or says where in a file they are; tasks take them apart. Small
transactions make small chunks, which are decoded together; a large one lies in files, and makes several.

    INLINE     messages, with their lengths
    FILED      the lengths (little-endian, 4 bytes each) and the messages, in a file
    SNAPSHOT   lines of CSV in a file: rows as they were at the beginning; data: the path of a file of the keys whose
               rows are left out, if there are any
    EMPTIED    nothing: the table was truncated
    ENDED      why the table is no longer the one that was declared
    KEPT       chunks that waited: a stream of Arrow, in a file or with it; those before the place in `first` are left
               out. They have their own places, and are of the epoch of this one's

Invariant: the rows of chunks depend on the changes alone, not on how these were cut into chunks.

>>> chunk = Chunk(lsn=7, at=0, kind=INLINE, shape="s", first=0, count=1, lengths=b"\\1\\0\\0\\0", data=b"I")
>>> batch_of([chunk]).num_rows
1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.postgressource import SourceTableTruncated, TableChanged, ValueUnfit
from tidegauge.evolution import filled
from tidegauge.lazy import library
from tidegauge.leftout import LEFT
from tidegauge.operations import INSERT, OP
from tidegauge.remap.fromtime.lsn import WAL, Lsn
from tidegauge.sources.database.keys import untouched
from tidegauge.sources.database.records import INLINE, OURS, filed, joined, runs
from tidegauge.sources.database.sequence import SEQUENCE, first_rows
from tidegauge.sources.database.values import values
from tidegauge.sources.metadata import TIMESTAMP
from tidegauge.sources.postgres.rows import SEQUENCE_BITS, ChangePlaces, changed
from tidegauge.sources.postgres.wire import TableShape
from tidegauge.sources.protocol import BadRecord, OnBadRecord

__all__ = ["EMPTIED", "ENDED", "FILED", "KEPT", "SNAPSHOT", "Chunk", "ManyChunks", "batch_of", "decoded"]

csv: Final = library("pyarrow.csv")
pc: Final = library("pyarrow.compute")

FILED, SNAPSHOT, EMPTIED, ENDED, KEPT = range(1, 6)

_SCHEMA: Final = pa.schema(
    [
        ("_partition", pa.dictionary(pa.int32(), pa.string())),
        ("_offset", pa.int64()),
        ("_at", pa.int64()),
        ("_kind", pa.int8()),
        ("_shape", pa.dictionary(pa.int32(), pa.string())),
        ("_first", pa.int64()),
        ("_count", pa.int64()),
        ("_lengths", pa.binary()),
        ("_data", pa.binary()),
        ("_file", pa.string()),
        ("_from", pa.int64()),
        ("_size", pa.int64()),
    ]
)


@dataclass(slots=True)  # each small transaction makes one, and a frozen one takes three times as long to make
class Chunk:
    """A record. lsn: the place of the commit. at: when that was, in microseconds since 1970. shape: of the table, as
    text. first: the number of its first change in the transaction. file, start, size: where its bytes are, if there.
    """

    lsn: int
    at: int
    kind: int
    shape: str
    first: int
    count: int
    lengths: bytes = b""
    data: bytes = b""
    file: str = ""
    start: int = 0
    size: int = 0


_FIELDS: Final = attrgetter(*(field.name for field in fields(Chunk)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyChunks:
    """Inline chunks of one shape, each the first of its transaction in its table, a column at a time: see `Chunk`.

    lsns, ats, counts: numbers. lengths, data: binary arrays. size: bytes of the messages.
    """

    shape: str
    lsns: Any
    ats: Any
    counts: Any
    lengths: Any
    data: Any
    size: int
    kind: int = INLINE

    def __len__(self) -> int:
        return len(self.lsns)

    def apart(self) -> list[Chunk]:
        """Return them one by one."""
        columns = (self.lsns, self.ats, self.counts, self.lengths, self.data)
        rows = zip(*(one.tolist() for one in columns), strict=True)
        return [Chunk(lsn, at, INLINE, self.shape, 0, count, lengths, data) for lsn, at, count, lengths, data in rows]

    def batch(self) -> pa.RecordBatch:
        """Return them as records."""
        many = len(self)
        none = pa.array(np.zeros(many, np.int64))
        arrays = [
            _of_one(WAL, many),
            pa.array(self.lsns),
            pa.array(self.ats),
            pa.array(np.full(many, INLINE, np.int8)),
            _of_one(self.shape, many),
            none,
            pa.array(self.counts),
            self.lengths,
            self.data,
            pa.repeat(pa.scalar("", pa.string()), many),
            none,
            none,
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def batch_of(chunks: Sequence[Chunk | ManyChunks]) -> pa.RecordBatch:
    """Return chunks of one stream as a batch of records with their places."""
    parts: list[pa.RecordBatch] = []
    listed: list[Chunk] = []
    for one in chunks:
        if isinstance(one, Chunk):
            listed.append(one)
            continue
        if listed:
            parts.append(_listed(listed))
            listed = []
        parts.append(one.batch())
    if listed:
        parts.append(_listed(listed))
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _listed(chunks: Sequence[Chunk]) -> pa.RecordBatch:
    columns = [[WAL] * len(chunks), *zip(*map(_FIELDS, chunks), strict=True)]
    arrays = [
        pa.array(values, pa.string()).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(values, field.type)
        for values, field in zip(columns, _SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _of_one(text: str, many: int) -> pa.DictionaryArray:
    """Return a column that has one text in all its rows."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(many, np.int32)), pa.array([text], pa.string()))


def decoded(
    records: pa.RecordBatch,
    columns: pa.Schema,
    table: str,
    on_bad_record: OnBadRecord,
    lacks: tuple[str, ...] = (),
) -> pa.RecordBatch:
    """Return the rows of records of one stream, in these columns, in the order of the records.

    With a column of marks behind them where some row leaves out a value (`tidegauge.leftout`). lacks: columns that
    came after all of these records.

    Raises `TableChanged` and `SourceTableTruncated`, once all bad records are told; `ReplicationBroken`,
    `PieceUnreadable`.
    """
    wanted = {field.name: field.type for field in columns if field.name not in OURS}
    parts: list[pa.RecordBatch] = []
    over: TableChanged | SourceTableTruncated | None = None
    for kind, text, run in runs(records):
        try:
            shape = TableShape.decoded(text)
            if kind == KEPT:
                parts += [decoded(one, columns, table, on_bad_record, shape.lacks) for one in _kept(run)]
                continue
            shape = replace(shape, lacks=shape.lacks or lacks)
            parts.append(_rows(run, shape, kind, wanted, columns, table, on_bad_record))
        except (TableChanged, SourceTableTruncated) as error:
            over = over or error
    if over is not None:
        raise over
    if any(LEFT in part.schema.names for part in parts):
        columns = columns.append(pa.field(LEFT, pa.string()))
        parts = [filled(part, columns) for part in parts]
    return joined(parts, columns)


def _rows(
    records: pa.RecordBatch,
    shape: TableShape,
    kind: int,
    wanted: Mapping[str, Any],
    columns: pa.Schema,
    table: str,
    on_bad_record: OnBadRecord,
) -> pa.RecordBatch:
    lsns = records["_offset"].to_numpy(zero_copy_only=False)
    if kind == EMPTIED:
        raise SourceTableTruncated(table=table, lsn=str(Lsn(int(lsns[0]))))
    if kind == ENDED:
        raise TableChanged(table=table, detail=records["_data"][0].as_py().decode())
    later = {name: type_ for name, type_ in wanted.items() if name in shape.lacks and name not in shape.columns}
    wanted = {name: type_ for name, type_ in wanted.items() if name not in later}
    if gone := [name for name in wanted if name not in shape.columns]:
        detail = f"it has no column {gone[0]!r} at {Lsn(int(lsns[0]))}; it has {', '.join(shape.columns)}"
        raise TableChanged(table=table, detail=detail)
    if kind == SNAPSHOT:
        made = _snapshot(records, shape, wanted, table, on_bad_record)
        of = np.zeros(len(made[OP]), np.int64)
    else:
        data, lengths, counts = _messages(records, kind)
        firsts = records["_first"].to_numpy(zero_copy_only=False)
        record = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(lengths)) - np.repeat(np.cumsum(counts) - counts - firsts, counts)
        ends = np.cumsum(lengths)
        starts = ends - lengths
        made, message, bad = changed(
            data, starts, ends, ChangePlaces(lsns[record], numbers), shape.columns, shape.keys, wanted, table
        )
        of = record[message]
        for one in bad:
            raw = data[starts[one.index] : ends[one.index]].tobytes()
            at = int(lsns[record[one.index]])
            on_bad_record(BadRecord(WAL, at, raw, one.code, one.message, left_out=one.left_out))
    taken = pa.array(of)
    made |= {name: pa.nulls(len(of), type_) for name, type_ in later.items()}
    made["_partition"] = pa.repeat(pa.scalar(WAL, pa.string()), len(of))
    made["_offset"] = records["_offset"].take(taken)
    made["_timestamp"] = records["_at"].take(taken).cast(TIMESTAMP)
    if LEFT in made:
        columns = columns.append(pa.field(LEFT, pa.string()))
    return pa.RecordBatch.from_arrays([made[name] for name in columns.names], schema=columns)


def _kept(record: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the chunks that a chunk has. Raises `PieceUnreadable`."""
    data = record["_data"][0].as_buffer() if not record["_file"][0].as_py() else pa.py_buffer(filed(record))
    first = record["_first"][0].as_py()
    with pa.ipc.open_stream(data) as stream:
        for batch in stream:
            yield batch.filter(pc.greater_equal(batch["_offset"], first))


def _messages(records: pa.RecordBatch, kind: int) -> tuple[Any, Any, Any]:
    """Return the bytes of the messages of records, their lengths one by one, and how many each record has."""
    counts = records["_count"].to_numpy(zero_copy_only=False)
    if kind == INLINE:
        data, lengths = (_bytes_of(records[name]) for name in ("_data", "_lengths"))
    else:
        whole = np.frombuffer(filed(records), np.uint8)
        lengths, data = whole[: 4 * int(counts[0])], whole[4 * int(counts[0]) :]
    return data, lengths.view("<u4").astype(np.int64), counts


def _bytes_of(column: pa.BinaryArray) -> Any:
    """Return all the bytes of a binary array that has no nulls, without a copy."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]]


def _snapshot(
    record: pa.RecordBatch, shape: TableShape, wanted: Mapping[str, Any], table: str, on_bad_record: OnBadRecord
) -> dict[str, Any]:
    """Return the rows of a piece of a snapshot."""
    lines = filed(record)
    found = csv.read_csv(
        pa.BufferReader(lines),
        read_options=csv.ReadOptions(column_names=list(shape.columns), use_threads=False, block_size=len(lines) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(shape.columns, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks()
    lsn, first = record["_offset"][0].as_py(), record["_first"][0].as_py()
    numbers = first + np.arange(found.num_rows)
    if without := record["_data"][0].as_py():
        kept = untouched(found, without.decode())
        found, numbers = found.filter(kept), numbers[kept.to_numpy(zero_copy_only=False)]
    made: dict[str, Any] = {}
    wrong: dict[int, ValueUnfit] = {}
    for name, kind in wanted.items():
        texts = found[name].combine_chunks()
        made[name], unfit = values(texts, kind)
        for row in unfit:
            shown = repr(texts[row].as_py()[:60].decode(errors="backslashreplace"))
            wrong.setdefault(row, ValueUnfit(column=name, table=table, value=shown, type=str(kind)))
    made[OP] = pa.repeat(pa.scalar(INSERT, pa.string()), found.num_rows)
    made[SEQUENCE] = first_rows(lsn, numbers, bits=SEQUENCE_BITS)
    if wrong:
        for row, error in sorted(wrong.items()):
            raw = repr({name: found[name][row].as_py() for name in shape.columns}).encode()
            on_bad_record(BadRecord(WAL, lsn, raw, error.code, error.summary))
        keep = np.ones(found.num_rows, np.bool_)
        keep[list(wrong)] = False
        made = {name: column.filter(pa.array(keep)) for name, column in made.items()}
    return made
