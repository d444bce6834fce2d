"""Messages into rows: the columns of the key, then those of the value, then what Kafka knows of each message.

Each part is decoded by its own format, a whole batch at once. A message is a row when both parts are good; otherwise
it is one bad record, with its raw key and value.

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

from tidegauge.sources.formats.messages import MessageFormat, Messages
from tidegauge.sources.kafka.reading import Bulk
from tidegauge.sources.metadata import MESSAGE, TIMESTAMP, without_metadata
from tidegauge.sources.protocol import BadRecord, OnBadRecord

__all__ = ["Decoder"]

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HEADERS: Final = MESSAGE.field("_headers").type


@dataclass(frozen=True, slots=True)
class Decoder:
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
    ) -> Messages:
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


def _of(part: Messages, kept: Any) -> pa.RecordBatch:
    """Return the rows of the messages `kept`, all of which the part has."""
    if part.indices is None:
        return part.rows.take(pa.array(kept))
    return part.rows.take(pa.array(np.searchsorted(part.indices.to_numpy(), kept)))


def _timestamps(bulk: Bulk) -> pa.Array:
    """Return when messages were produced, or appended where the topic says so; null where there is no time."""
    times = np.array(bulk.times, np.int64)
    return pa.array(times * 1000, TIMESTAMP, mask=times < 0)


def _headers(headers: Sequence[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]


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
        timestamp=None if since < 0 else _ZERO + timedelta(milliseconds=since),
    )
