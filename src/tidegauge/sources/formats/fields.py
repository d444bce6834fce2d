r"""CSV records that are known to be well formed become columns: by name or position, then by type.

Invariant: whether a record is a row depends on that record alone. The quick way lets Arrow make the types; the
careful one takes every field as text and converts it, which accepts more and tells single values apart. What the
quick way accepts, the careful way accepts with the same values.

>>> names_in(b'a,"b, c"', ",", '"')
['a', 'b, c']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tidegauge.errors.sources import AmbiguousHeader, HeaderMismatch
from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.convert import converted
from tidegauge.sources.formats.gather import Gathered, Reading, Refused, gather
from tidegauge.sources.formats.records import BOM, Mask, Records

__all__ = ["Fields", "names_in"]


def names_in(record: bytes, delimiter: str, quote: str | None) -> list[str]:
    """Return the fields of one record as text; bytes that are not UTF-8 are shown as U+FFFD."""
    text = record.decode("utf-8", "replace")
    if quote is None:
        return text.split(delimiter)
    pieces: list[list[str]] = []
    inside = False
    for piece in text.split(delimiter):
        if inside:
            pieces[-1].append(piece)
        else:
            pieces.append([piece])
        inside ^= bool(piece.count(quote) & 1)
    return [_unquoted(delimiter.join(parts), quote) for parts in pieces]


def _unquoted(field: str, quote: str) -> str:
    if len(field) > 1 and field[0] == quote == field[-1]:
        return field[1:-1].replace(quote * 2, quote)
    return field


class Fields:
    """Reads records whose fields are `names`, in this order, as rows of `schema`."""

    def __init__(
        self, names: list[str], schema: pa.Schema, *, delimiter: str, quote: str | None, null: tuple[str, ...]
    ) -> None:
        """Raise `HeaderMismatch` when no column is among the names, `AmbiguousHeader` when one is there twice."""
        self.schema, self.width = schema, len(names)
        self.place = {column: str(names.index(column)) for column in schema.names if column in names}
        if not self.place:
            raise HeaderMismatch(columns=schema.names, header=names)
        for column in self.place:
            if names.count(column) > 1:
                raise AmbiguousHeader(column=column, header=names)
        self._delimiter, self._quote, self._null = delimiter, quote, list(null)
        # What Arrow must not see of a decimal is found when it is a text.
        types = [(column.name, pa.string() if pa.types.is_decimal(column.type) else column.type) for column in schema]
        zoneless = [(name, pa.timestamp(of.unit) if pa.types.is_timestamp(of) else of) for name, of in types]
        self._quick = [dict(types)] if zoneless == types else [dict(types), dict(zoneless)]
        self._careful = dict.fromkeys(schema.names, pa.string())

    def rows(self, records: Records) -> tuple[pa.RecordBatch, Ints]:
        """Return the rows of the good records and which records those are; mark the others."""
        sound = records.sound()
        lines = records.lines(sound)

        def reading(types: dict[str, Any]) -> Reading:
            def read(i: int, j: int) -> Gathered:
                outcome = self._read(lines.between(i, j), j - i, types)
                if types is self._quick[-1]:
                    # What was right for this block is likely to be right for the next.
                    self._quick.reverse()
                return outcome

            return read

        return gather(records, sound, [*map(reading, self._quick), reading(self._careful)], self.schema)

    def _read(self, text: memoryview, count: int, types: dict[str, Any]) -> Gathered:
        ragged: dict[int, list[int]] = {}

        def on_ragged(row: Any) -> str:
            ragged.setdefault(row.actual_columns, []).append(row.number - 1)
            return "skip"

        table = self._table(text, types, on_ragged)
        if table.num_rows + sum(map(len, ragged.values())) != count:
            raise Refused(f"not one record of {self.width} fields")
        full = np.ones(count, np.bool_)
        problems: list[tuple[Ints, str]] = []
        for found, rows_of in ragged.items():
            which = np.array(rows_of, np.int64)
            full[which] = False
            problems.append((which, f"{found} fields where there should be {self.width}"))
        arrays, good = [], np.ones(table.num_rows, np.bool_)
        for column in self.schema:
            array, bad, problem = self._column(table, column)
            arrays.append(array)
            if bad.any():
                good &= ~bad
                problems.append((np.flatnonzero(full)[bad], problem))
        kept = full
        kept[full] = good
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return Gathered(rows if good.all() else rows.filter(pa.array(good)), kept, problems)

    def _table(self, text: memoryview, types: dict[str, Any], on_ragged: Callable[[Any], str]) -> pa.Table:
        if bytes(text[: len(BOM)]) == BOM:
            # Arrow passes over a mark at the beginning of any text; here it is data, and Arrow is given another.
            text = memoryview(BOM + bytes(text))
        try:
            return pyarrow.csv.read_csv(
                pa.BufferReader(pa.py_buffer(text)),
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=len(text) + 1,
                    column_names=[str(place) for place in range(self.width)],
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char=self._quote or False,
                    newlines_in_values=self._quote is not None,
                    invalid_row_handler=on_ragged,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types={place: types[column] for column, place in self.place.items()},
                    include_columns=list(self.place.values()),
                    null_values=self._null,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise Refused(str(error)) from error

    def _column(self, table: pa.Table, column: pa.Field) -> tuple[Any, Mask, str]:
        """Return a column as its type, its faulty rows, and their faults."""
        place = self.place.get(column.name)
        if place is None:
            array, bad = pa.nulls(table.num_rows, column.type), np.zeros(table.num_rows, np.bool_)
        else:
            chunks = table.column(place)
            found = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
            array, bad = converted(found, column.type)
        if bad.any():
            return array, bad, f"column {column.name}: a text that is no {column.type}"
        if not column.nullable and array.null_count:
            return array, array.is_null().to_numpy(zero_copy_only=False), f"column {column.name}: null, and NOT NULL"
        return array, bad, ""
