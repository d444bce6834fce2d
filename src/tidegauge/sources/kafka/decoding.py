"""Messages into rows: the columns of the key, then those of the value, then what Kafka knows of each message.

Each part is decoded by its own format, a whole batch at once. A message is a row when both parts are good; otherwise
it is one bad record, with its raw key and value.

What Kafka knows of a message can be bad, too, where it is asked for: a header whose name is no text, and a time that
no calendar has. Kafka keeps any 64 bits as the time of a message, and -1 says that it has none; an instant is what is
from 1970 to the end of the year 9999.

Invariant: the rows of a partition come in the order of their offsets, and every message is either a row or a bad
record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.kafka import HeaderUnreadable, MessageTimeUnfit
from tidegauge.sources.formats.messages import MessageFormat, MessageRows, Problems
from tidegauge.sources.kafka.reading import Bulk
from tidegauge.sources.metadata import MESSAGE, TIMESTAMP, without_metadata
from tidegauge.sources.protocol import BadRecord, OnBadRecord

__all__ = ["MessageDecoder"]

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final = -1
_LAST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_HEADERS: Final = MESSAGE.field("_headers").type


@dataclass(frozen=True, slots=True)
class MessageDecoder:
    """How the messages of a source become rows. `keyed`: how many columns are the key's."""

    format: MessageFormat
    key: MessageFormat | None
    metadata: bool
    schema: pa.Schema
    keyed: int

    def decode(self, bulk: Bulk, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of messages."""
        wrong: dict[int, tuple[str, str]] = {}
        columns = list(without_metadata(self.schema, metadata=self.metadata, columns=MESSAGE))
        found = [self._part(self.format, bulk.values, columns[self.keyed :], wrong, "")]
        if self.key is not None:
            found.insert(0, self._part(self.key, bulk.keys, columns[: self.keyed], wrong, "key: "))
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
        columns: Sequence[Any],
        wrong: dict[int, tuple[str, str]],
        prefix: str,
    ) -> MessageRows:
        def on_bad(index: int, code: str, message: str) -> None:
            wrong.setdefault(index, (code, prefix + message))

        return format.decode_messages(values, schema=pa.schema(columns), on_bad=on_bad)

    def _stamped(self, rows: Sequence[pa.RecordBatch], bulk: Bulk, kept: Any) -> pa.RecordBatch:
        columns = [column for part in rows for column in part.columns]
        if not self.metadata:
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        names, counts = zip(*bulk.runs, strict=True)
        facts = [
            pa.array(np.repeat(np.array(names, object), counts), pa.string()),
            pa.array(bulk.offsets, pa.int64()),
            _timestamps(bulk),
            pa.array(bulk.keys, pa.binary()),
            pa.array(map(_headers, bulk.headers), _HEADERS),
        ]
        chosen = facts if kept is None else [fact.take(pa.array(kept)) for fact in facts]
        return pa.RecordBatch.from_arrays([*columns, *chosen], schema=self.schema)


def _of(part: MessageRows, kept: Any) -> pa.RecordBatch:
    """Return the rows of the messages `kept`, all of which the part has."""
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
    """Return what is wrong with what Kafka knows of messages."""
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
    ends = list(accumulate(count for _, count in bulk.runs))
    return BadRecord(
        bulk.runs[bisect_right(ends, index)][0],
        bulk.offsets[index],
        bulk.values[index] or b"",
        code,
        problem,
        key=bulk.keys[index],
        timestamp=_ZERO + timedelta(milliseconds=since) if 0 <= since <= _LAST else None,
    )
