r"""Columns that records have beside those that are known: how a format tells them.

Columns that are not declared are inferred from the first records (`infer`). A format that infers tells of later
ones, too, which further columns these have, where somebody asks (`sources.scouting`). What tells a column is a
value: a null does not, nor does an empty list. A field whose name is that of a known column but for its case, or that
no table can have as a column, is ignored, as a field that is not asked for always is.

Invariant: the answer begins with the known columns, unchanged but for fields that their structs have besides; and it
is the same, whether the records are looked at in one go or in several, unless a field has values of several kinds.

>>> known = pa.schema([("id", pa.int64())])
>>> further_json(b'{"id": 1, "ID": 2, "x": null}\n{"id": "bad", "note": "text"}\n', known).names
['id', 'note']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.json

from tidegauge.evolution import joined
from tidegauge.sources.formats.convert import contains
from tidegauge.sources.formats.infer import column_by_column, infer_text, told_by_json

__all__ = ["FurtherLines", "FurtherMessages", "further_json", "further_texts"]

_PIECE: Final = 1 << 16
"""How many bytes of JSON are at least gone through in Python where Arrow does not do."""


@runtime_checkable
class FurtherLines(Protocol):
    """A line format that can tell further columns."""

    def further(
        self, stream: BinaryIO, *, lower: int, upper: int | None, header: bytes, schema: pa.Schema
    ) -> pa.Schema:
        """Return columns, and those that records of `[lower, upper)` have besides. Called as `LineFormat.decode`."""
        ...


@runtime_checkable
class FurtherMessages(Protocol):
    """A format of messages that can tell further columns."""

    def further_messages(self, values: Sequence[bytes | None], *, schema: pa.Schema) -> pa.Schema:
        """Return columns, and those that the messages have besides; one that cannot be decoded tells none.

        Raises `Transient`.
        """
        ...


def further_json(lines: bytes | memoryview, known: pa.Schema) -> pa.Schema:
    """Return the known columns and those that objects, one on each line, have besides."""
    if not (telling := _telling(memoryview(lines), known)):
        return known
    return joined(known, column_by_column(told_by_json(telling), "the JSON"))


def _telling(lines: memoryview, known: pa.Schema) -> bytes:
    """Return the lines around those that may tell a further column: one bad line makes few of them slow."""
    if _nothing_new(lines, known):
        return b""
    text = bytes(lines)
    cut = text.find(b"\n", len(text) // 2) + 1
    if len(text) <= _PIECE or not 0 < cut < len(text):
        return text if text.endswith(b"\n") else text + b"\n"
    return _telling(lines[:cut], known) + _telling(lines[cut:], known)


def _nothing_new(lines: memoryview, known: pa.Schema) -> bool:
    """Whether Arrow, which is quick, finds no further column; it does not know of lines that are bad."""
    if contains(pa.struct(list(known)), pa.types.is_map):
        return False
    try:
        found = pyarrow.json.read_json(
            pa.BufferReader(pa.py_buffer(lines)),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pyarrow.json.ParseOptions(unexpected_field_behavior="infer"),
        ).schema
    except (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError):
        return False
    return bool(joined(known, pa.schema(_without_nulls(found))).equals(known))


def _without_nulls(fields: Any) -> list[pa.Field]:
    return [field.with_type(kind) for field in fields if (kind := _valued(field.type)) is not None]


def _valued(of: Any) -> Any:
    if pa.types.is_struct(of):
        inner = _without_nulls(of)
        return pa.struct(inner) if inner else None
    if pa.types.is_list(of):
        item = _valued(of.value_type)
        return None if item is None else pa.list_(item)
    return None if pa.types.is_null(of) else of


def further_texts(told: dict[str, Any], columns: Mapping[str, Any]) -> None:
    """Take in the texts of columns that are known by name alone: each gets the kind that holds all of its texts."""
    for name, texts in columns.items():
        if texts.null_count == len(texts):
            continue
        kind = infer_text({name: texts}).field(name).type
        before = told.setdefault(name, kind)
        if before != kind:
            told[name] = pa.float64() if {before, kind} == {pa.int64(), pa.float64()} else pa.string()
