"""Messages into rows: the columns of the key, then those of the value, then what Kafka knows of each message.

Columns that a format does not declare are inferred from the first messages, once, and kept with the first binding.
Only columns are kept; whose they are follows from the declared part, so key or value has to be declared. The
declaration is compared with the bound columns, since an edited part would give the other one's columns to it. (Only
one edit does not show: a key that is declared to have the value's first column, too, by name and type.)

Each part is decoded by its own format, a whole batch at once. A message is a row when both parts are good; otherwise
it is one bad record, with its raw key and value. Where messages have an envelope, it says what rows they are
(`enveloping`).

Kafka's own facts about a message can be bad, too, where they are asked for: a header whose name is no text, and a
time that no calendar has. Kafka keeps any 64 bits as the time of a message, and -1 says that it has none; instants go
from 1970 to the end of the year 9999.

Invariant: the rows of a partition come in the order of their offsets, and without an envelope every message is either
a row or a bad record. A column of a row is the key's, the value's or Kafka's, the same in every run, and no two have
one name.

>>> key, value = pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())])
>>> joined(key, value, metadata=False, topics="orders").names
['k', 'n']
>>> both = joined(key, value, metadata=True, topics="orders")
>>> [part.names for part in key_and_value(both, None, value, metadata=True, source="orders")]
[['k'], ['n']]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.engine import UnknownOperation
from tidegauge.errors.kafka import HeaderUnreadable, KeyAndValueClash, MessageTimeUnfit
from tidegauge.errors.store import SchemaChanged
from tidegauge.evolution import evolved, kinds, wider
from tidegauge.operations import OP, carries, said_of, unknown
from tidegauge.remap.store.columns import differences
from tidegauge.sources.formats.messages import MessageFormat, MessageRows, Problems
from tidegauge.sources.kafka.enveloping import ERROR, Envelope, EnvelopeReader, enveloped, row_columns
from tidegauge.sources.kafka.reading import Bulk
from tidegauge.sources.metadata import MESSAGE, TIMESTAMP, with_metadata, without_metadata
from tidegauge.sources.protocol import BadRecord, OnBadRecord

__all__ = ["MessageDecoder", "facts_of", "joined", "key_and_value"]

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final = -1
_LAST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_HEADERS: Final = MESSAGE.field("_headers").type

_KNOWN: Final = 1024
"""Of how many sources it is remembered which columns are the key's: bound columns do not change."""


def joined(
    key: pa.Schema, value: pa.Schema, *, metadata: bool, topics: object, envelope: Envelope = "append"
) -> pa.Schema:
    """Return the columns of rows. Raises `KeyAndValueClash`, `ReservedColumn`."""
    taken = {name.lower() for name in key.names}
    if both := [name for name in value.names if name.lower() in taken]:
        raise KeyAndValueClash(topics=str(topics), columns=both)
    where = f"the source of {topics}"
    columns = enveloped(pa.schema([*key, *value]), envelope, keys=len(key), where=where)
    return with_metadata(columns, metadata=metadata, where=where, columns=facts_of(envelope))


def facts_of(envelope: Envelope) -> pa.Schema:
    """Return the columns of the facts about a message beside its key and value."""
    return MESSAGE.append(pa.field(ERROR, pa.string())) if envelope in ("upsert", "debezium") else MESSAGE


@lru_cache(maxsize=_KNOWN)
def key_and_value(
    bound: pa.Schema,
    key: pa.Schema | None,
    value: pa.Schema | None,
    *,
    metadata: bool,
    source: str,
    envelope: Envelope = "append",
) -> tuple[pa.Schema, pa.Schema]:
    """Return which of the bound columns are the key's and which the value's, given those that are declared.

    The columns of a value may be earlier ones than those that are declared. Raises `SchemaChanged` when the
    declaration differs from the bound columns by more than such may.
    """
    known = facts_of(envelope)
    facts = pa.schema(list(bound)[-len(known) :]).equals(known)
    if facts != metadata:
        change = f"metadata: {facts} -> {metadata}"
        raise SchemaChanged(source=source, differences=[change])
    columns = list(without_metadata(bound, metadata=metadata, columns=known))
    ends = enveloped(pa.schema([]), envelope, keys=0, where=source)
    if ends and not pa.schema(columns[-len(ends) :]).equals(ends):
        raise SchemaChanged(source=source, differences=[f"{ends.names[0]}: new, as of envelope={envelope!r}"])
    columns = columns[: len(columns) - len(ends)]
    count = len(key) if key is not None else max(0, len(columns) - len(value or ()))
    mine, others = pa.schema(columns[:count]), pa.schema(columns[count:])
    if value is not None:
        value = pa.schema(list(enveloped(value, envelope, keys=0, where=source))[: len(value)])
    if key is not None and (other := differences(mine, key)):
        raise SchemaChanged(source=source, differences=other)
    changed = [] if value is None else differences(others, value)
    if envelope == "append" and value is not None and carries(others) and not carries(value):
        raise SchemaChanged(source=source, differences=changed)  # no column that rows lack: the envelope is off
    if changed and (
        key is None or evolved(kinds(others), kinds(value or others), "evolve", widens=wider, nests=True).refused
    ):
        # Where the key is inferred, the number of declared columns tells which are whose: it has to stay.
        raise SchemaChanged(source=source, differences=changed)
    return mine, others


@dataclass(frozen=True, slots=True)
class MessageDecoder:
    """How the messages of a source become rows of `schema`. keys, values: the columns of each part."""

    format: MessageFormat
    key: MessageFormat | None
    metadata: bool
    schema: pa.Schema
    keys: pa.Schema
    values: pa.Schema
    envelope: Envelope = "append"

    def decode(self, bulk: Bulk, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of messages."""
        return self._plain(bulk, on_bad_record) if self.envelope == "append" else self._changes(bulk, on_bad_record)

    def _changes(self, bulk: Bulk, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        declared = row_columns(self.envelope, self.format, self.format.schema, self.keys)
        values = self.values if declared is None else declared
        reader = EnvelopeReader(self.envelope, self.format, self.key, self.keys, values)
        found = reader.read(bulk.keys, bulk.values, _untold(bulk) if self.metadata else {})
        for index in sorted({*found.faults, *found.refused}):
            if index in found.refused:
                kind, facts = found.refused[index]
                raise kind(partition=_partition(bulk, index), position=bulk.offsets[index], **facts)
            bad = _bad(bulk, index, *found.faults[index])
            on_bad_record(replace(bad, withdraws=True) if index in found.withdrawn else bad)
        told = []
        if self.metadata:
            told = [fact.take(pa.array(found.places)) for fact in _facts(bulk)]
            told += [found.errors()] if ERROR in self.schema.names else []
        return pa.RecordBatch.from_arrays([*found.columns, *told], schema=self.schema)

    def _plain(self, bulk: Bulk, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        wrong: dict[int, tuple[str, str]] = {}
        found = [self._part(self.format, bulk.values, self.values, wrong, "")]
        if self.key is not None:
            found.insert(0, self._part(self.key, bulk.keys, self.keys, wrong, "key: "))
        if OP in self.schema.names:
            _unoperated(found, wrong)
        if self.metadata:
            wrong |= _untold(bulk)
        for index in sorted(wrong):
            on_bad_record(_bad(bulk, index, *wrong[index]))
        kept = None
        rows = [part.rows for part in found]
        if wrong or any(part.indices is not None for part in found):
            kept = np.setdiff1d(np.arange(len(bulk)), np.fromiter(wrong, np.int64, len(wrong)))
            rows = [_of(part, kept) for part in found]
        return self._stamped(rows, bulk, kept)

    @staticmethod
    def _part(
        format: MessageFormat,
        values: Sequence[bytes | None],
        columns: pa.Schema,
        wrong: dict[int, tuple[str, str]],
        prefix: str,
    ) -> MessageRows:
        def on_bad(index: int, code: str, message: str) -> None:
            wrong.setdefault(index, (code, prefix + message))

        return format.decode_messages(values, schema=columns, on_bad=on_bad)

    def _stamped(self, rows: Sequence[pa.RecordBatch], bulk: Bulk, kept: Any) -> pa.RecordBatch:
        columns = [column for part in rows for column in part.columns]
        if not self.metadata:
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        facts = _facts(bulk)
        chosen = facts if kept is None else [fact.take(pa.array(kept)) for fact in facts]
        return pa.RecordBatch.from_arrays([*columns, *chosen], schema=self.schema)


def _facts(bulk: Bulk) -> list[Any]:
    """Return what Kafka knows of each message, by columns."""
    names, counts = zip(*bulk.runs, strict=True)
    return [
        pa.array(np.repeat(np.array(names, object), counts), pa.string()),
        pa.array(bulk.offsets, pa.int64()),
        _timestamps(bulk),
        pa.array(bulk.keys, pa.binary()),
        pa.array(map(_headers, bulk.headers), _HEADERS),
    ]


def _unoperated(found: Sequence[MessageRows], wrong: dict[int, tuple[str, str]]) -> None:
    """Note the messages whose row has no operation."""
    for part in found:
        if carries(part.rows.schema) and (without := unknown(part.rows[OP])) is not None:
            for row in np.flatnonzero(without).tolist():
                index = row if part.indices is None else part.indices[row].as_py()
                wrong.setdefault(index, (UnknownOperation.code, said_of(part.rows[OP][row].as_py())))


def _of(part: MessageRows, kept: Any) -> pa.RecordBatch:
    """Return the rows of the messages `kept`, which all have the part."""
    if part.indices is None:
        return part.rows.take(pa.array(kept))
    return part.rows.take(pa.array(np.searchsorted(part.indices.to_numpy(), kept)))


def _timestamps(bulk: Bulk) -> pa.Array:
    """Return when messages were produced, or appended where the topic says so; null where there is no time."""
    times = np.array(bulk.times, np.int64)
    there = _instants(times)
    return pa.array(np.where(there, times, 0) * 1000, TIMESTAMP, mask=~there)


def _instants(times: Any) -> Any:
    return (times >= 0) & (times <= _LAST)


def _untold(bulk: Bulk) -> Problems:
    """Return the faults of Kafka's own facts about messages."""
    times = np.array(bulk.times, np.int64)
    found: Problems = {
        int(index): (MessageTimeUnfit.code, f"its timestamp is {times[index]} ms since 1970, no instant to 9999")
        for index in np.flatnonzero(~_instants(times) & (times != _NONE))
    }
    if str in set(map(type, bulk.headers)):
        told = enumerate(bulk.headers)
        found |= {index: (HeaderUnreadable.code, why) for index, why in told if isinstance(why, str)}
    return found


def _headers(headers: Sequence[tuple[str, bytes | None]] | str | None) -> list[dict[str, Any]] | None:
    if headers is None or isinstance(headers, str):
        return None
    return [{"key": key, "value": value} for key, value in headers]


def _bad(bulk: Bulk, index: int, code: str, problem: str) -> BadRecord:
    since = bulk.times[index]
    return BadRecord(
        _partition(bulk, index),
        bulk.offsets[index],
        bulk.values[index] or b"",
        code,
        problem,
        key=bulk.keys[index],
        timestamp=_ZERO + timedelta(milliseconds=since) if 0 <= since <= _LAST else None,
    )


def _partition(bulk: Bulk, index: int) -> str:
    ends = list(accumulate(count for _, count in bulk.runs))
    return bulk.runs[bisect_right(ends, index)][0]
