"""Messages that are changes: what became of the row of their key, as the envelope of a topic says it.

    upsert     a value is the row of its key now (`update`); a tombstone, which has none, takes it away (`delete`)
    debezium   a record has an operation: with `c`, `r` and `u` the row is `after` (`update`), with `d` it is gone
    cdc        the same records as plain rows, all kept, with a word in the column `op`

All that puts a row is an `update`, since an `insert` says that there was no row. Producers say that without knowing:
Debezium takes snapshots again, sends changes twice, and has its topics compacted.

*Errors by key.* A value that cannot be decoded is a bad record and a `delete` of its key: what the key had before is
not right any more. The next good value of the key puts a row there. A message whose key is missing or cannot be
decoded is a bad record alone, and a tombstone with the same bytes as key takes it back.

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
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from tidegauge.errors.changes import BadKeyWithdrawn, ChangeUnreadable, KeyUnreadable, MessageWithoutKey
from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.lazy import library
from tidegauge.operations import BEFORE, DELETE, INSERT, OP, UPDATE
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.messages import MessageFormat, Problems

__all__ = ["ERROR", "ChangeRows", "Envelope", "EnvelopeReader", "check_envelope", "enveloped"]

pc: Final[Any] = library("pyarrow.compute")

Envelope: TypeAlias = Literal["none", "upsert", "debezium", "cdc"]

ERROR: Final = "_error"
"""Why a `delete` is one, where a value could not be decoded. It is a column of messages with `metadata=True`."""

_WORD: Final = "op"
_READ: Final = "read"
_ONES: Final = {"c": INSERT, "r": _READ, "u": UPDATE, "d": DELETE}
_PAYLOAD: Final = "payload"
_SHOWN: Final = 40


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
        if not isinstance(format, Json) or format.schema is None:
            expected = "tg.Json with the columns of the rows, in which Debezium's records are read"
            raise InvalidArgument(parameter="format", value=format, expected=expected)
        if isinstance(key, Json) and (key.schema is None or _PAYLOAD in key.schema.names):
            expected = f"tg.Json with the columns of the key, none of them called {_PAYLOAD!r}"
            raise InvalidArgument(parameter="key", value=key, expected=expected)


def enveloped(columns: pa.Schema, envelope: Envelope, *, keys: int, where: str) -> pa.Schema:
    """Return the columns of rows, given those of keys (the first `keys`) and values. Raises `ReservedColumn`.

    A `delete` has nulls beside the key, so only the columns of the key may be NOT NULL.
    """
    if envelope == "none":
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

    faults: the messages that are bad records. withdrawn: those among them that take others back.
    """

    columns: Sequence[Any]
    places: Ints
    faults: Problems
    withdrawn: frozenset[int]

    def errors(self) -> Any:
        """Return for each row what is wrong with its message, null where nothing is."""
        texts = {at: f"{code}: {message}" for at, (code, message) in self.faults.items()}
        return pa.array(map(texts.get, self.places.tolist()), pa.string())


@dataclass(frozen=True, slots=True)
class _Values:
    """Decoded values. places: which message each is of. words: their operations, as Debezium abbreviates them.

    images: the columns of the rows before all of them, and then of the rows after them, `shift` places on. told:
    whether there is a row before.
    """

    places: Ints
    words: Any
    images: Sequence[Any]
    shift: int
    told: Any


@dataclass(frozen=True, slots=True)
class EnvelopeReader:
    """How messages become changes. keys, values: the columns of each part, as they are declared."""

    envelope: Envelope
    format: MessageFormat
    key: MessageFormat | None
    keys: pa.Schema
    values: pa.Schema

    def read(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], unfit: Problems) -> ChangeRows:
        """Return the rows of messages. unfit: what is wrong with messages beside their keys and values."""
        faults: Problems = {}
        good, columns = self._keyed(keys, faults)
        withdrawn = frozenset(at for at in faults if values[at] is None)
        for at in withdrawn:
            faults[at] = (BadKeyWithdrawn.code, "a tombstone: what was bad under this key is taken back")
        faults |= {at: unfit[at] for at in good.tolist() if at in unfit}
        there = np.array([at for at in good.tolist() if values[at] is not None], np.int64)
        found = self._upserts if self.envelope == "upsert" else self._records
        read = found([values[at] for at in there.tolist()], there, faults)
        made = self._all(good, columns, read) if self.envelope == "cdc" else self._last(good, columns, read)
        return ChangeRows(*made, faults, withdrawn)

    def _keyed(self, keys: Sequence[bytes | None], faults: Problems) -> tuple[Ints, list[Any]]:
        """Return which messages have a good key, and its columns; note the others."""
        if self.key is None:
            return np.arange(len(keys)), []
        there = np.array([at for at, key in enumerate(keys) if key is not None], np.int64)
        faults |= {at: (MessageWithoutKey.code, "it has no key") for at, key in enumerate(keys) if key is None}

        def on_bad(index: int, _code: str, message: str) -> None:
            faults[int(there[index])] = (KeyUnreadable.code, f"key: {message}")

        wrapped = self.envelope != "upsert" and isinstance(self.key, Json)
        wire = _in_payload(list(self.keys)) if wrapped else self.keys
        part = self.key.decode_messages([keys[at] for at in there.tolist()], schema=wire, on_bad=on_bad)
        places = there if part.indices is None else there[part.indices.to_numpy()]
        columns = _taken_out(part.rows) if wrapped else list(part.rows.columns)
        whole = np.ones(len(places), np.bool_)
        for name, column in zip(self.keys.names, columns, strict=True):
            lacks = column.is_null().to_numpy(zero_copy_only=False)
            for at in places[lacks & whole].tolist():
                faults[at] = (MessageWithoutKey.code, f"column {name} of its key is null")
            whole &= ~lacks
        if not whole.all():
            columns = [column.filter(pa.array(whole)) for column in columns]
        return places[whole], columns

    def _upserts(self, values: Sequence[bytes | None], there: Ints, faults: Problems) -> _Values:
        part = self.format.decode_messages(values, schema=self.values, on_bad=_noting(there, faults))
        places = there if part.indices is None else there[part.indices.to_numpy()]
        none = np.zeros(len(places), np.bool_)
        return _Values(places, np.full(len(places), "u", object), part.rows.columns, 0, none)

    def _records(self, values: Sequence[bytes | None], there: Ints, faults: Problems) -> _Values:
        """Return Debezium's records; those that are none are noted."""
        row = pa.struct([one.with_nullable(True) for one in self.values])  # noqa: FBT003
        wire = _in_payload([pa.field("before", row), pa.field("after", row), pa.field("op", pa.string())])
        part = self.format.decode_messages(values, schema=wire, on_bad=_noting(there, faults))
        places = there if part.indices is None else there[part.indices.to_numpy()]
        before, after, op = _taken_out(part.rows)
        words = np.array(op.to_pylist(), object)
        told = before.is_valid().to_numpy(zero_copy_only=False)
        puts = np.isin(words, ["c", "r", "u"])
        afters = after.flatten()
        wrong: dict[int, str] = {}
        for at in np.flatnonzero(~puts & (words != "d")).tolist():
            wrong[at] = f"its op is {repr(words[at])[:_SHOWN]}, none of c, r, u and d"
        for at in np.flatnonzero(puts & after.is_null().to_numpy(zero_copy_only=False)).tolist():
            wrong[at] = f"its op is {words[at]!r}, and it has no row after it"
        for column, array in zip(self.values, afters, strict=True):
            if not column.nullable:
                for at in np.flatnonzero(puts & array.is_null().to_numpy(zero_copy_only=False)).tolist():
                    wrong.setdefault(at, f"column after.{column.name}: null, and NOT NULL")
        faults |= {int(places[at]): (ChangeUnreadable.code, why) for at, why in wrong.items()}
        fine = np.setdiff1d(np.arange(len(places)), np.fromiter(wrong, np.int64, len(wrong)))
        both = np.concatenate([fine, fine + len(places)])
        images = [
            pa.concat_arrays([old, new]).take(pa.array(both))
            for old, new in zip(before.flatten(), afters, strict=True)
        ]
        return _Values(places[fine], words[fine], images, len(fine), told[fine])

    @staticmethod
    def _last(good: Ints, keys: Sequence[Any], read: _Values) -> tuple[list[Any], Ints]:
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
    def _all(good: Ints, keys: Sequence[Any], read: _Values) -> tuple[list[Any], Ints]:
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


def _noting(there: Ints, faults: Problems) -> Any:
    def on_bad(index: int, code: str, message: str) -> None:
        faults[int(there[index])] = (code, message)

    return on_bad


def _in_payload(columns: Sequence[Any]) -> pa.Schema:
    """Return the columns of records that stand bare, or in `payload` beside a `schema`, as Kafka Connect has it."""
    open_ones = [one.with_nullable(True) for one in columns]  # noqa: FBT003
    return pa.schema([*open_ones, pa.field(_PAYLOAD, pa.struct(open_ones))])


def _taken_out(rows: pa.RecordBatch) -> list[Any]:
    """Return the columns of records, each from where it stands."""
    bare: list[Any] = list(rows.columns)
    payload = bare.pop()
    inside = payload.is_valid().to_numpy(zero_copy_only=False)
    if not inside.any():
        return bare
    places = pa.array(np.arange(rows.num_rows) + np.where(inside, rows.num_rows, 0))
    return [pa.concat_arrays(pair).take(places) for pair in zip(bare, payload.flatten(), strict=True)]
