"""Messages that are changes: what became of the row of their key, as the envelope of a topic says it.

    upsert     a value is the row of its key now (`update`); a tombstone, which has none, takes it away (`delete`)
    debezium   a record has an operation: with `c`, `r` and `u` the row is `after` (`update`), with `d` it is gone
    cdc        the same records as plain rows, all kept, with a word in the column `op`

All that puts a row is an `update`, since an `insert` says that there was no row. Producers say that without knowing:
Debezium takes snapshots again, sends changes twice, and has its topics compacted.

*Errors by key.* A value that cannot be decoded is a bad record and a `delete` of its key: what the key had before is
not right any more. The next good value of the key puts a row there. A message whose key is missing or cannot be
decoded is a bad record alone, and a tombstone with the same bytes as key takes it back. What neither may do is
*refused*, and ends the reading: see `debezium`.

Invariant: what a message becomes depends on that message alone. With `upsert` and `debezium`, one with a good key is
one row; with `cdc`, one with a good record is a row, or two where an update tells the row before it.

>>> from tidegauge.sources.formats.json import Json
>>> key, value = Json("id long"), Json("name string")
>>> reader = EnvelopeReader("upsert", value, key, key.schema, value.schema)
>>> found = reader.read([b'{"id": 1}', b'{"id": 1}', b'{"id": 2}', None], [b'{"name": "ada"}', None, b"?", b"{}"], {})
>>> [column.to_pylist() for column in found.columns]
[[1, 1, 2], ['ada', None, None], ['update', 'delete', 'delete']]
>>> found.faults
{3: ('TG-0454', 'it has no key'), 2: ('TG-0323', 'not one JSON object')}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from tidegauge.errors.changes import (
    BadKeyWithdrawn,
    ChangeUnreadable,
    KeyUnreadable,
    MessageWithoutKey,
    TableTruncated,
    ValueUnavailable,
)
from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.operations import BEFORE, DELETE, INSERT, OP, UPDATE
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.messages import MessageFormat, MessageRows, Problems
from tidegauge.sources.kafka.debezium import (
    PAYLOAD,
    DecodedChanges,
    Refusals,
    in_payload,
    records_of,
    rows_in,
    taken_out,
    truncations,
    unavailable,
)

__all__ = ["ERROR", "ChangeRows", "Envelope", "EnvelopeReader", "check_envelope", "enveloped", "row_columns"]

Envelope: TypeAlias = Literal["append", "upsert", "debezium", "cdc"]

ERROR: Final = "_error"
"""Why a `delete` is one, where a value could not be decoded. It is a column of messages with `metadata=True`."""

_WORD: Final = "op"
_READ: Final = "read"
_ONES: Final = {"c": INSERT, "r": _READ, "u": UPDATE, "d": DELETE}


def check_envelope(envelope: Envelope, format: MessageFormat, key: MessageFormat | None) -> None:
    """Raise `InvalidArgument` unless messages in these formats can have the envelope."""
    if envelope not in get_args(Envelope):
        raise InvalidArgument(
            parameter="envelope", value=envelope, expected=f"one of {', '.join(get_args(Envelope))}"
        )
    if envelope in ("upsert", "debezium") and key is None:
        raise InvalidArgument(
            parameter="key", value=None, expected=f"the format of keys: envelope={envelope!r} needs it"
        )
    if envelope in ("debezium", "cdc"):
        if isinstance(format, Json) and format.schema is None:
            expected = "tg.Json with the columns of the rows, in which Debezium's records are read"
            raise InvalidArgument(parameter="format", value=format, expected=expected)
        if not isinstance(format, Json) and key is not None and key.schema is None:
            expected = "a format that declares the columns of the key: the others of a record are the value's"
            raise InvalidArgument(parameter="key", value=key, expected=expected)
        if isinstance(key, Json) and (key.schema is None or PAYLOAD in key.schema.names):
            expected = f"tg.Json with the columns of the key, none of them called {PAYLOAD!r}"
            raise InvalidArgument(parameter="key", value=key, expected=expected)


def row_columns(
    envelope: Envelope, format: MessageFormat, columns: pa.Schema | None, keys: pa.Schema | None
) -> pa.Schema | None:
    """Return the columns of the rows that values tell, given the format's own. Raises `NoChangeRecords`.

    JSON declares those of the rows, other formats those of the whole record.
    """
    if columns is None or envelope not in ("debezium", "cdc") or isinstance(format, Json):
        return columns
    return rows_in(columns, without=[] if keys is None else keys.names)


def enveloped(columns: pa.Schema, envelope: Envelope, *, keys: int, where: str) -> pa.Schema:
    """Return the columns of rows, given those of keys (the first `keys`) and values. Raises `ReservedColumn`.

    A `delete` has nulls beside the key, so only the columns of the key may be NOT NULL.
    """
    if envelope == "append":
        return columns
    word = _WORD if envelope == "cdc" else OP
    for name in columns.names:
        if name.lower() in (word, OP):
            raise ReservedColumn(where=where, column=name)
    open_ones = [one if at < keys else one.with_nullable(True) for at, one in enumerate(columns)]  # noqa: FBT003
    return pa.schema([*open_ones, pa.field(word, pa.string())])


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The rows of messages, by their columns, the operation last. places: which message each is of, ascending.

    faults: the messages that are bad records. withdrawn: those among them that take others back. refused: those that
    must not be passed over, not even as bad records.
    """

    columns: Sequence[Any]
    places: Ints
    faults: Problems
    withdrawn: frozenset[int]
    refused: Refusals

    def errors(self) -> Any:
        """Return the fault of each row's message, null where it has none."""
        texts = {at: f"{code}: {message}" for at, (code, message) in self.faults.items()}
        return pa.array(map(texts.get, self.places.tolist()), pa.string())


@dataclass(frozen=True, slots=True)
class EnvelopeReader:
    """How messages become changes. keys, values: the declared columns of each part."""

    envelope: Envelope
    format: MessageFormat
    key: MessageFormat | None
    keys: pa.Schema
    values: pa.Schema

    def read(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], unfit: Problems) -> ChangeRows:
        """Return the rows of messages. unfit: the faults of messages beside their keys and values."""
        faults: Problems = {}
        good, columns = self._keyed(keys, faults)
        withdrawn = frozenset(at for at in faults if values[at] is None)
        for at in withdrawn:
            faults[at] = (BadKeyWithdrawn.code, "a tombstone: what was bad under this key is taken back")
        faults |= {at: unfit[at] for at in good.tolist() if at in unfit}
        there = np.array([at for at in good.tolist() if values[at] is not None and at not in unfit], np.int64)
        read, refused = self._decoded(values, there, faults)
        if self.envelope == "cdc":
            return ChangeRows(*self._all(good, columns, read), faults, withdrawn, {})
        if self.envelope == "debezium":
            bare = [at for at, key in enumerate(keys) if key is None and values[at] is not None]
            told = truncations(self.format, [values[at] for at in bare])
            refused = {**refused, **{bare[at]: (TableTruncated, {}) for at in told}}
        return ChangeRows(*self._last(good, columns, read), faults, withdrawn, refused)

    def _keyed(self, keys: Sequence[bytes | None], faults: Problems) -> tuple[Ints, list[Any]]:
        """Return which messages have a good key, and its columns; note the others."""
        if self.key is None:
            return np.arange(len(keys)), []
        there = np.array([at for at, key in enumerate(keys) if key is not None], np.int64)
        faults |= {at: (MessageWithoutKey.code, "it has no key") for at, key in enumerate(keys) if key is None}

        def on_bad(index: int, _code: str, message: str) -> None:
            faults[int(there[index])] = (KeyUnreadable.code, f"key: {message}")

        wrapped = self.envelope != "upsert" and isinstance(self.key, Json)
        wire = in_payload(list(self.keys)) if wrapped else self.keys
        part = self.key.decode_messages([keys[at] for at in there.tolist()], schema=wire, on_bad=on_bad)
        places = there if part.indices is None else there[part.indices.to_numpy()]
        columns = taken_out(part.rows) if wrapped else list(part.rows.columns)
        whole = np.ones(len(places), np.bool_)
        for name, column in zip(self.keys.names, columns, strict=True):
            lacks = column.is_null().to_numpy(zero_copy_only=False)
            for at in places[lacks & whole].tolist():
                faults[at] = (MessageWithoutKey.code, f"column {name} of its key is null")
            whole &= ~lacks
        if not whole.all():
            columns = [column.filter(pa.array(whole)) for column in columns]
        return places[whole], columns

    def _decoded(
        self, values: Sequence[bytes | None], there: Ints, faults: Problems
    ) -> tuple[DecodedChanges, Refusals]:
        """Return the values of the messages `there`, and those that must not be passed over; note the bad ones."""

        def on_bad(index: int, code: str, message: str) -> None:
            faults[int(there[index])] = (code, message)

        mine = [values[at] for at in there.tolist()]
        if self.envelope == "upsert":
            found = _upserts(self.format.decode_messages(mine, schema=self.values, on_bad=on_bad), len(mine))
        else:
            found = records_of(self.format, mine, self.values, on_bad)
        faults |= {int(there[at]): (ChangeUnreadable.code, why) for at, why in found.wrong.items()}
        refused = {int(there[at]): one for at, one in found.refused.items()}
        return replace(found, places=there[found.places]), refused

    @staticmethod
    def _last(good: Ints, keys: Sequence[Any], read: DecodedChanges) -> tuple[list[Any], Ints]:
        """Return a row for each good key: what it is from this message on."""
        hit = np.isin(good, read.places)
        records = np.where(hit, np.searchsorted(read.places, good), 0)
        gone = ~hit
        if len(read.places):
            gone |= read.words[records] == "d"
        image = pa.array(records + np.where(gone, 0, read.shift), mask=~hit)
        words = pa.array(np.where(gone, DELETE, UPDATE), pa.string())
        return [*keys, *(column.take(image) for column in read.images), words], good

    @staticmethod
    def _all(good: Ints, keys: Sequence[Any], read: DecodedChanges) -> tuple[list[Any], Ints]:
        """Return each record as a row, and before an update the row that it takes the place of."""
        two = (read.words == "u") & read.told
        records = np.repeat(np.arange(len(read.places)), 1 + two)
        older = np.zeros(len(records), np.bool_)
        older[np.flatnonzero(two) + np.arange(two.sum())] = True
        said = read.words[records]
        image = pa.array(records + np.where(older | (said == "d"), 0, read.shift))
        words = pa.array([BEFORE if old else _ONES[one] for one, old in zip(said, older, strict=True)], pa.string())
        places = read.places[records]
        mine = pa.array(np.searchsorted(good, places))
        return [*(key.take(mine) for key in keys), *(column.take(image) for column in read.images), words], places


def _upserts(part: MessageRows, count: int) -> DecodedChanges:
    """Return values that are rows, as records that put them."""
    places = np.arange(count) if part.indices is None else part.indices.to_numpy()
    words, untold = np.full(len(places), "u", object), np.zeros(len(places), np.bool_)
    lacking = unavailable(part.rows.schema.names, part.rows.columns)
    refused = {int(places[at]): (ValueUnavailable, {"column": column}) for at, column in lacking.items()}
    return DecodedChanges(places, words, part.rows.columns, 0, untold, {}, refused)
