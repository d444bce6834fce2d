"""From the bytes of a column to its values: a few operations of numpy for all rows.

Invariant: a value is that which the server has, or is told to be unfit; nothing is rounded, cut or nulled.

>>> data = np.frombuffer(bytes([0xFE, 0xFF, 5, 0]) + bytes(8), np.uint8)
>>> cells = ColumnCells(data, np.array([0, 2]), np.array([2, 2]), np.array([False, False]))
>>> cells_of(cells, ShapeColumn("n", 2, 0), pa.int16(), "")[0].to_pylist()
[-2, 5]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.mysqlsource import BinlogTableChanged
from tidegauge.lazy import library
from tidegauge.sources.database.values import gathered
from tidegauge.sources.mysql.documents import text_of
from tidegauge.sources.mysql.shapes import ShapeColumn
from tidegauge.sources.mysql.types import CODECS, DIGITS

__all__ = ["ColumnCells", "cells_of", "layout"]

pc: Final = library("pyarrow.compute")

_INTEGERS: Final = {1: 1, 2: 2, 3: 4, 8: 8, 9: 3}
_FIXED: Final = {**_INTEGERS, 4: 4, 5: 8, 10: 3, 13: 1}
_TIMES: Final = {17: 4, 18: 5, 19: 3}
_BINARY: Final = "binary"


@dataclass(frozen=True, slots=True)
class ColumnCells:
    """Where the values of a column are in some bytes, and which are null."""

    data: Any
    starts: Any
    sizes: Any
    nulls: Any


def layout(column: ShapeColumn) -> tuple[int, int] | None:
    """Return how many bytes a value of a column has, or 0 and the bytes of its length; None for types not known.

    >>> layout(ShapeColumn("a", 15, 300)), layout(ShapeColumn("d", 246, 10 << 8 | 2)), layout(ShapeColumn("g", 7, 0))
    ((0, 2), (5, 0), None)
    """
    kind, meta = column.type, column.meta
    if kind in _FIXED:
        return _FIXED[kind], 0
    if kind in _TIMES:
        return _TIMES[kind] + (meta + 1) // 2, 0
    if kind == 246:
        whole, scale = (meta >> 8) - (meta & 0xFF), meta & 0xFF
        return DIGITS[whole % 9] + whole // 9 * 4 + scale // 9 * 4 + DIGITS[scale % 9], 0
    if kind in (15, 141, 254):  # 140 and 141 are compressed: their values are skipped
        return 0, 1 if meta < 256 else 2
    if kind in (140, 245, 252, 255):
        return 0, meta
    if kind in (247, 248):
        return meta, 0
    return ((meta >> 8) + (meta & 0xFF > 0), 0) if kind == 16 else None


def cells_of(cells: ColumnCells, column: ShapeColumn, kind: Any, charset: str) -> tuple[Any, list[int]]:
    """Return the values of cells, and the indices of those that are unfit; these are null.

    kind: the Arrow type. charset: of the column, "" where it has none. Raises `BinlogTableChanged` where the column
    has become one of a type that does not give such values.
    """
    number = column.type
    if number in _INTEGERS and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        found, bad = _integers(cells, column), None
        if pa.types.is_decimal(kind):
            return _decimals(found, np.zeros_like(found), kind, cells.nulls), []
    elif number in (4, 5) and pa.types.is_floating(kind):
        size = 4 if number == 4 else 8
        found, bad = _bytes(cells, size).view(f"<f{size}").ravel(), None
    elif number == 246 and (pa.types.is_decimal(kind) or pa.types.is_string(kind)):
        return _numeric(cells, column, kind), []
    elif number == 10 and pa.types.is_date(kind):
        found, bad = _dates(cells)
    elif number in (17, 18) and pa.types.is_timestamp(kind):
        found, bad = _instants(cells, column) if number == 17 else _datetimes(cells, column)
    elif number == 13 and pa.types.is_integer(kind):
        raw = _unsigned(cells, 1).astype(np.int64)
        found, bad = np.where(raw > 0, raw + 1900, 0), None
    elif number == 16 and pa.types.is_integer(kind):
        found, bad = _unsigned(cells, (layout(column) or (0, 0))[0], big=True).astype(np.int64), None
    elif number in (19, 247, 248) and pa.types.is_string(kind):
        words = {19: _time, 247: _word, 248: _words}[number]
        return _each(cells, column, charset, words), []
    elif number == 245 and pa.types.is_string(kind):
        return _documents(cells)
    elif number in (15, 252, 254) and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return _texts(cells, column, kind, charset)
    else:
        raise BinlogTableChanged(table="", detail=f"its column {column.name!r} has another type, and gave {kind}")
    unfit = [] if bad is None else np.flatnonzero(bad & ~cells.nulls).tolist()
    mask = cells.nulls if bad is None else cells.nulls | bad
    array = pa.array(found, mask=mask)
    return (array.cast(kind) if array.type != kind else array), unfit


def _bytes(cells: ColumnCells, size: int) -> Any:
    """Return the first bytes of each cell, those of nulls as well, which mean nothing."""
    padded = np.minimum(cells.starts[:, None] + np.arange(size), len(cells.data) - 1)
    return np.ascontiguousarray(cells.data[padded])


def _unsigned(cells: ColumnCells, size: int, *, big: bool = False, first: int = 0) -> Any:
    found = np.zeros(len(cells.starts), np.uint64)
    last = len(cells.data) - 1
    for byte in range(size):
        shift = np.uint64(8 * (size - 1 - byte if big else byte))
        found |= cells.data[np.minimum(cells.starts + first + byte, last)].astype(np.uint64) << shift
    return found


def _integers(cells: ColumnCells, column: ShapeColumn) -> Any:
    size = _INTEGERS[column.type]
    found = _unsigned(cells, size)
    if column.unsigned:
        return found if size == 8 else found.astype(np.int64)
    shift = np.int64(64 - 8 * size)
    return (found.view(np.int64) << shift) >> shift


def _decimals(low: Any, high: Any, kind: Any, nulls: Any) -> Any:
    """Return decimals of 128 bits from their halves."""
    halves = np.empty((len(low), 2), np.uint64)
    halves[:, 0], halves[:, 1] = low.astype(np.uint64), high.astype(np.uint64)
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(low), [valid, pa.py_buffer(halves.tobytes())])


def _numeric(cells: ColumnCells, column: ShapeColumn, kind: Any) -> Any:
    """Return decimals: groups of nine digits in four bytes; the first bit is set where it is not negative."""
    precision, scale = column.meta >> 8, column.meta & 0xFF
    small = precision <= 18
    whole = precision - scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    positive = _unsigned(cells, 1) >= 0x80
    total: Any = np.zeros(len(positive), np.int64 if small else object)
    at = 0
    for digits in groups:
        size = DIGITS[digits]
        if not size:
            continue
        part = _unsigned(cells, size, big=True, first=at)
        if at == 0:
            part ^= np.uint64(1 << (8 * size - 1))
        part = np.where(positive, part, part ^ np.uint64((1 << 8 * size) - 1)).astype(np.int64)
        total = total * 10**digits + (part if small else part.astype(object))
        at += size
    total = np.where(positive, total, -total)
    if pa.types.is_string(kind):
        texts = [None if null else _shown(one, scale) for one, null in zip(total, cells.nulls, strict=True)]
        return pa.array(texts, pa.string())
    total = np.where(cells.nulls, 0, total)
    if small:
        found = _decimals(total, total >> 63, pa.decimal128(38, scale), cells.nulls)
    else:
        low = np.array([int(one) & 0xFFFFFFFFFFFFFFFF for one in total], np.uint64)
        high = np.array([(int(one) >> 64) & 0xFFFFFFFFFFFFFFFF for one in total], np.uint64)
        found = _decimals(low, high, pa.decimal128(38, scale), cells.nulls)
    return found.cast(kind)


def _shown(number: int, scale: int) -> str:
    """Return a decimal as the server writes it.

    >>> _shown(-1205, 2), _shown(5, 3), _shown(7, 0)
    ('-12.05', '0.005', '7')
    """
    digits = str(abs(number)).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


def _days(year: Any, month: Any, day: Any) -> tuple[Any, Any]:
    """Return days since 1970, and which are of no calendar."""
    months = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
    back = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return days, (year < 1) | (month < 1) | (month > 12) | (day < 1) | (back != months)


def _dates(cells: ColumnCells) -> tuple[Any, Any]:
    raw = _unsigned(cells, 3).astype(np.int64)
    days, bad = _days(raw >> 9, raw >> 5 & 15, raw & 31)
    return days.astype("datetime64[D]"), bad


def _fraction(cells: ColumnCells, column: ShapeColumn, first: int) -> Any:
    """Return the microseconds of times with a part of a second."""
    size = (column.meta + 1) // 2
    return _unsigned(cells, size, big=True, first=first).astype(np.int64) * 100 ** (3 - size)


def _instants(cells: ColumnCells, column: ShapeColumn) -> tuple[Any, Any]:
    seconds = _unsigned(cells, 4, big=True).astype(np.int64)
    micros = seconds * 1_000_000 + _fraction(cells, column, 4)
    return micros.astype("datetime64[us]"), micros == 0


def _datetimes(cells: ColumnCells, column: ShapeColumn) -> tuple[Any, Any]:
    raw = _unsigned(cells, 5, big=True).astype(np.int64) - (1 << 39)
    months, time = raw >> 22, raw & 0x1FFFF
    days, bad = _days(months // 13, months % 13, raw >> 17 & 31)
    seconds = days * 86400 + (time >> 12) * 3600 + (time >> 6 & 63) * 60 + (time & 63)
    return (seconds * 1_000_000 + _fraction(cells, column, 5)).astype("datetime64[us]"), bad


def _each(
    cells: ColumnCells, column: ShapeColumn, charset: str, shown: Callable[[ShapeColumn, int, str], str]
) -> Any:
    """Return texts of values, each made once."""
    size = (layout(column) or (0, 0))[0]
    raw = _unsigned(cells, size, big=column.type == 19)
    unique, which = np.unique(np.where(cells.nulls, 0, raw), return_inverse=True)
    texts = pa.array([shown(column, int(one), charset) for one in unique], pa.string())
    return texts.take(pa.array(which, mask=cells.nulls))


def _time(column: ShapeColumn, raw: int, _: str) -> str:
    """Return a time as the server writes it, from -838:59:59 to 838:59:59."""
    bits = 8 * ((column.meta + 1) // 2)
    value = raw - (0x800000 << bits) if raw else 0
    whole, part = abs(value) >> bits, abs(value) & ((1 << bits) - 1)
    text = f"{'-' if value < 0 else ''}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
    if not column.meta:
        return text
    return f"{text}.{part * 100 ** (3 - bits // 8):06d}"[: len(text) + 1 + column.meta]


def _word(column: ShapeColumn, raw: int, charset: str) -> str:
    return _decoded(column.words[raw - 1], charset) if raw else ""


def _words(column: ShapeColumn, raw: int, charset: str) -> str:
    return ",".join(_decoded(word, charset) for at, word in enumerate(column.words) if raw >> at & 1)


def _decoded(word: str, charset: str) -> str:
    return word.encode("latin-1").decode(CODECS.get(charset, "utf-8"))


def _texts(cells: ColumnCells, column: ShapeColumn, kind: Any, charset: str) -> tuple[Any, list[int]]:
    found = gathered(cells.data, cells.starts, cells.sizes, ~cells.nulls)
    if pa.types.is_binary(kind):
        if column.type == 254 and charset == _BINARY:  # the log leaves out the zeros at the end of BINARY(n)
            padded = [None if one is None else one.ljust(column.meta, b"\0") for one in found.to_pylist()]
            found = pa.array(padded, pa.binary())
        return found.cast(kind), []
    if CODECS.get(charset) == "cp1252":
        # What the server calls latin1 is cp1252, with the five bytes that it lacks as they are in latin-1.
        return pa.array([None if one is None else _latin(one) for one in found.to_pylist()], pa.string()), []
    if charset not in CODECS:
        raise BinlogTableChanged(table="", detail=f"its column {column.name!r} has the charset {charset or 'binary'}")
    try:
        return found.cast(kind), []
    except pa.ArrowInvalid:
        unfit, texts = [], []
        for at, one in enumerate(found.to_pylist()):
            try:
                texts.append(None if one is None else one.decode())
            except UnicodeDecodeError:
                unfit.append(at)
                texts.append(None)
        return pa.array(texts, kind), unfit


def _documents(cells: ColumnCells) -> tuple[Any, list[int]]:
    unfit: list[int] = []
    texts: list[str | None] = []
    for at, one in enumerate(gathered(cells.data, cells.starts, cells.sizes, ~cells.nulls).to_pylist()):
        try:
            texts.append(None if one is None else text_of(one))
        except ValueError:
            unfit.append(at)
            texts.append(None)
    return pa.array(texts, pa.string()), unfit


def _latin(text: bytes) -> str:
    try:
        return text.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(_letter(byte) for byte in text)


def _letter(byte: int) -> str:
    one = bytes([byte])
    return one.decode("latin-1") if byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else one.decode("cp1252")
