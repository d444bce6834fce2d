"""What the log says of a table before its rows: names, types and more of its columns (`binlog_row_metadata=FULL`).

    TABLE_MAP   number u48, flags u16, database, table, types, what the types need, which may be null, and then
                fields of (kind u8, length, value): signs, charsets, names, words of enums and sets, primary key

Invariant: a shape is a value that depends on the event alone, and goes through text unchanged.

>>> shape = LoggedTable("shop", "t", (ShapeColumn("id", 3, 0),), (0,))
>>> LoggedTable.decoded(shape.encoded()) == shape
True
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

from tidegauge.errors.mysqlsource import BinlogBroken
from tidegauge.sources.mysql.events import HEADER, packed

__all__ = ["LoggedTable", "ShapeColumn", "shape_of"]

_META: Final = {4: 1, 5: 1, 249: 1, 250: 1, 251: 1, 252: 1, 255: 1, 245: 1, 15: 2, 16: 2, 246: 2, 253: 2, 254: 2}
_META_TIMES: Final = {17: 1, 18: 1, 19: 1, 140: 1, 141: 2, 247: 2, 248: 2}
_SIGNED: Final = frozenset({1, 2, 3, 4, 5, 8, 9, 13, 246})
_TEXTUAL: Final = frozenset({15, 140, 141, 249, 250, 251, 252, 253, 254})
"""Types that have a charset in the log: compressed ones have one as well."""
_GEOMETRY: Final = 255
"""Points and other shapes: they have one in MariaDB's log, and none in MySQL's."""
Names = Callable[[Sequence[int], Sequence[int]], tuple[Sequence["ShapeColumn"], tuple[int, ...]]]
_ENUM, _SET, _STRING = 247, 248, 254


@dataclass(frozen=True, slots=True)
class ShapeColumn:
    """A column. type: the server's number. meta: what the type needs. charset: its name, "" without one.

    words: of an enum or set, as their bytes in latin-1."""

    name: str
    type: int
    meta: int
    unsigned: bool = False
    charset: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """A table. key: the indices of its primary key."""

    database: str
    table: str
    columns: tuple[ShapeColumn, ...]
    key: tuple[int, ...]

    def encoded(self) -> str:
        """Return the shape as text."""
        return json.dumps(asdict(self))

    @staticmethod
    @lru_cache(maxsize=256)
    def decoded(text: str) -> LoggedTable:
        """Return the shape of a text."""
        found = json.loads(text)
        columns = tuple(ShapeColumn(**{**one, "words": tuple(one["words"])}) for one in found["columns"])
        return LoggedTable(found["database"], found["table"], columns, tuple(found["key"]))


def shape_of(
    event: bytes, charsets: Mapping[int, str], names: Names | None = None, *, mysql: bool = False
) -> LoggedTable:
    """Return the shape that a TABLE_MAP tells. charsets: names by the numbers of collations. names: returns the
    columns of the types and what they need, where the log has no names, and then the indices of the primary key.
    mysql: whether it is the log of a MySQL.

    Raises `BinlogBroken`, also where there are no names, and what `names` does.
    """
    try:
        return _shape(event, charsets, names, _TEXTUAL if mysql else _TEXTUAL | {_GEOMETRY})
    except (IndexError, KeyError, ValueError) as error:
        raise BinlogBroken(event="TABLE_MAP", problem=f"its parts do not add up ({error!r})") from None


def _shape(event: bytes, charsets: Mapping[int, str], named: Names | None, textual: Collection[int]) -> LoggedTable:
    at = HEADER.size + 8
    names = []
    for _ in range(2):
        size = event[at]
        names.append(event[at + 1 : at + 1 + size].decode())
        at += size + 2
    count, at = packed(event, at)
    types = list(event[at : at + count])
    size, at = packed(event, at + count)
    metas, end = [], at + size
    for number, kind in enumerate(types):
        width = {**_META, **_META_TIMES}.get(kind, 0)
        raw = event[at : at + width]
        at += width
        if kind == _STRING:
            types[number], meta = _string(raw[0], raw[1])
        elif kind == 246:
            meta = raw[0] << 8 | raw[1]
        else:
            meta = int.from_bytes(raw, "little")
        metas.append(meta)
    if at != end:
        raise ValueError("types")
    if named is not None:
        columns, key = named(types, metas)
        return LoggedTable(names[0], names[1], tuple(columns), key)
    fields = dict(_fields(event, end + (count + 7) // 8))
    if 4 not in fields:
        problem = f"it has no names of columns: binlog_row_metadata was not FULL when {'.'.join(names)} was changed"
        raise BinlogBroken(event="TABLE_MAP", problem=problem)
    return LoggedTable(
        names[0], names[1], tuple(_columns(types, metas, fields, charsets, textual)), tuple(_key(fields))
    )


def _string(first: int, second: int) -> tuple[int, int]:
    """Return the type and its meta: an enum's or set's bytes, or the most bytes of a char."""
    if first in (_ENUM, _SET):
        return first, second
    if first & 0x30 != 0x30:
        return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return first, second


def _fields(event: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(event):
        kind = event[at]
        size, at = packed(event, at + 1)
        yield kind, event[at : at + size]
        at += size


def _columns(
    types: list[int],
    metas: list[int],
    fields: dict[int, bytes],
    charsets: Mapping[int, str],
    textual: Collection[int],
) -> Iterator[ShapeColumn]:
    signs, names = fields.get(1, b""), _texts(fields[4])
    numeric = [at for at, kind in enumerate(types) if kind in _SIGNED]
    unsigned = {at for number, at in enumerate(numeric) if signs[number // 8] >> (7 - number % 8) & 1}
    collations = {
        **_collations(fields, 2, 3, [at for at, kind in enumerate(types) if kind in textual]),
        **_collations(fields, 10, 11, [at for at, kind in enumerate(types) if kind in (_ENUM, _SET)]),
    }
    words: dict[int, tuple[str, ...]] = {}
    for field, kind in ((5, _SET), (6, _ENUM)):
        listed = iter(_lists(fields.get(field, b"")))
        words.update({at: next(listed) for at, one in enumerate(types) if one == kind})
    for at, (kind, meta) in enumerate(zip(types, metas, strict=True)):
        name = names[at].decode()
        charset = charsets.get(collations[at], f"of collation {collations[at]}") if at in collations else ""
        yield ShapeColumn(name, kind, meta, at in unsigned, charset, words.get(at, ()))


def _collations(fields: dict[int, bytes], default: int, each: int, columns: list[int]) -> dict[int, int]:
    if each in fields:
        return dict(zip(columns, _numbers(fields[each]), strict=True))
    if default not in fields:
        return {}
    usual, *others = _numbers(fields[default])
    found = dict.fromkeys(columns, usual)
    found.update({columns[at]: other for at, other in zip(others[::2], others[1::2], strict=True)})
    return found


def _key(fields: dict[int, bytes]) -> list[int]:
    return _numbers(fields[9])[::2] if 9 in fields else _numbers(fields.get(8, b""))


def _numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = packed(data, at)
        found.append(number)
    return found


def _texts(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, at = packed(data, at)
        found.append(data[at : at + size])
        at += size
    return found


def _lists(data: bytes) -> Iterator[tuple[str, ...]]:
    at: int = 0
    while at < len(data):
        count, at = packed(data, at)
        words: list[Any] = []
        for _ in range(count):
            size, at = packed(data, at)
            words.append(data[at : at + size].decode("latin-1"))
            at += size
        yield tuple(words)
