"""Columns as JSON text: one document a row, made column by column, never value by value (but for binary).

Invariant: each text is a JSON value (RFC 8259) of the row alone, and the same rows give the same bytes. Nothing loses
digits: integers and decimals are written out in full, whatever a reader makes of them.

    boolean, string, integer       as JSON has them
    float                          the shortest digits that give it back, with a point or an exponent; NaN and the
                                   infinities, which JSON does not have, are null
    decimal                        a number with all its digits
    date                           "2026-11-20"
    instant, local time            "2026-11-20T17:00:00.000000Z", without the Z where there is no zone
    binary                         base64 (RFC 4648, with padding)
    list, struct, map              arrays and objects; keys of maps that are no strings are written as strings
    null                           null, also in objects: no field is ever left out

>>> batch = pa.record_batch({"id": [2**53 + 1, None], "at": pa.array([0, 1], pa.timestamp("us", tz="UTC"))})
>>> objects(batch, ["id", "at"]).to_pylist()
['{"id":9007199254740993,"at":"1970-01-01T00:00:00.000000Z"}', '{"id":null,"at":"1970-01-01T00:00:00.000001Z"}']
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.types as pt

from tidegauge.errors.kafkasink import NotInJson

__all__ = ["objects", "texts"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see

_ESCAPED: Final = '["\\\\\\x00-\\x1f]'
_YEARS: Final = (-62_135_596_800_000_000, 253_402_300_800_000_000)
"""The microseconds since 1970 at which the years 1 and 10000 begin."""
_CONTROLS: Final = [chr(code) for code in range(0x20)]


def objects(batch: pa.RecordBatch, columns: Sequence[str]) -> Any:
    """Return each row of the given columns as the text of a JSON object, an array of large strings."""
    return _object([(name, batch.column(name)) for name in columns], batch.num_rows)


def texts(array: Any) -> Any:
    """Return each value as the text of a JSON value, an array of large strings without nulls. Types as `stored`."""
    kind = array.type
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _or_null(_strings(array.cast(pa.large_string())))
    if pt.is_floating(kind):
        return _or_null(_floats(array))
    if pt.is_timestamp(kind):
        _check_years(array)
        # the tenth byte is the blank between date and time, as the years that instants have here take four digits
        local = pc.binary_replace_slice(_plain(array.cast(pa.timestamp("us"))), 10, 11, "T")
        return _or_null(_join('"', local, 'Z"' if kind.tz is not None else '"'))
    if pt.is_date(kind):
        return _or_null(_quoted(_plain(array)))
    if pt.is_binary(kind):
        encoded = [None if value is None else b64encode(value).decode("ascii") for value in array.to_pylist()]
        return _or_null(_quoted(pa.array(encoded, pa.large_string())))
    if pt.is_struct(kind):
        fields = [(kind.field(i).name, pc.struct_field(array, [i])) for i in range(kind.num_fields)]
        return _where_valid(array, _object(fields, len(array)))
    if pt.is_map(kind):
        return _where_valid(array, _map(array))
    if pt.is_list(kind):
        return _where_valid(array, _join("[", _joined(array, texts(pc.list_flatten(array))), "]"))
    return _or_null(_plain(array))


def _plain(array: Any) -> Any:
    return array.cast(pa.large_string())


def _join(*parts: Any) -> Any:
    """Return texts put together, row by row; parts are arrays of large strings, or strings."""
    scalars = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", pa.large_string()))


def _quoted(text: Any) -> Any:
    return _join('"', text, '"')


def _or_null(text: Any) -> Any:
    return pc.fill_null(text, pa.scalar("null", pa.large_string()))


def _where_valid(array: Any, text: Any) -> Any:
    return pc.if_else(pc.is_valid(array), text, pa.scalar("null", pa.large_string())) if array.null_count else text


def _check_years(array: Any) -> None:
    ends = pc.min_max(array.cast(pa.int64())).as_py()
    if ends["min"] is not None and not (_YEARS[0] <= ends["min"] and ends["max"] < _YEARS[1]):
        raise NotInJson


def _strings(array: Any) -> Any:
    """Return strings quoted and escaped. Most columns have nothing to escape, which one look tells."""
    if pc.any(pc.match_substring_regex(array, _ESCAPED)).as_py():
        array = pc.replace_substring(pc.replace_substring(array, "\\", "\\\\"), '"', '\\"')
        if pc.any(pc.match_substring_regex(array, "[\\x00-\\x1f]")).as_py():
            for control in _CONTROLS:
                array = pc.replace_substring(array, control, json.dumps(control)[1:-1])
    return _quoted(array)


def _floats(array: Any) -> Any:
    text = _plain(array)
    text = pc.if_else(pc.match_substring_regex(text, "^-?[0-9]+$"), _join(text, ".0"), text)
    return pc.if_else(pc.is_finite(array), text, pa.scalar(None, pa.large_string()))


def _object(fields: Sequence[tuple[str, Any]], rows: int) -> Any:
    if not fields:
        return pa.repeat(pa.scalar("{}", pa.large_string()), rows)
    parts: list[Any] = []
    for name, array in fields:
        parts += [f"{',' if parts else '{'}{json.dumps(name, ensure_ascii=False)}:", texts(array)]
    return _join(*parts, "}")


def _map(array: Any) -> Any:
    whole = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    entries = pc.list_flatten(whole)
    keys, items = pc.struct_field(entries, [0]), pc.struct_field(entries, [1])
    named = texts(keys) if pt.is_string(keys.type) else _strings(_unquoted(texts(keys)))
    return _join("{", _joined(whole, _join(named, ":", texts(items))), "}")


def _unquoted(text: Any) -> Any:
    """Return texts without the quotes of those that are JSON strings, which dates and the like are."""
    return pc.if_else(pc.starts_with(text, '"'), pc.utf8_slice_codeunits(text, 1, -1), text)


def _joined(array: Any, elements: Any) -> Any:
    """Return the texts of the elements of each list, with commas between them; "" for a null."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    lists = pa.LargeListArray.from_arrays(offsets, elements)
    return pc.binary_join(lists, pa.scalar(",", pa.large_string()))
