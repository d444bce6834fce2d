"""Where the records of a batch belong in a partitioned source: the partition and the position of each.

A layout knows one kind of batch: where its places are, and how to cut it. `ArrowRows` is for record batches with
their places in two columns, as with `metadata=True`; `Pairs` is for lists of `(record, (partition, position))`.

A partition that is an integer stands for its decimal text.

Invariant: `places` gives every record a partition and a position from 0 to `LARGEST`, or raises; no integer goes
through a float.

>>> rows = pa.record_batch({"id": [1, 2, 3], "_partition": ["p0", "p1", "p0"], "_offset": [5, 0, 6]})
>>> ArrowRows().places(rows, "orders")
Places(partitions=('p0', 'p1'), codes=array([0, 1, 0], dtype=uint16), positions=array([5, 0, 6]))
>>> Pairs().places([("tea", ("p0", 5)), ("salt", ("p0", 6))], "orders")
Places(partitions=('p0',), codes=None, positions=array([5, 6]))
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegauge.errors.reclock import UnplacedRecords

__all__ = ["ArrowRows", "Ints", "Layout", "Numbers", "Pairs", "Places", "narrow"]

Ints: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.uint16]
"""Numbers that are small most of the time, and then 16 bits wide: numpy sorts these in linear time."""
B = TypeVar("B", bound=Sized)

_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a batch's records, in their sequence.

    partitions: by code. codes: the partition of each record, None when all are of the first. positions: of each.
    """

    partitions: tuple[str, ...]
    codes: Numbers | None
    positions: Ints

    def slice(self, start: int, stop: int) -> Places:
        """Return the places of the records from `start` to before `stop`, as a view."""
        codes = None if self.codes is None else self.codes[start:stop]
        return Places(self.partitions, codes, self.positions[start:stop])

    def take(self, rows: Ints) -> Places:
        """Return the places of some records, as a copy."""
        return Places(self.partitions, None if self.codes is None else self.codes[rows], self.positions[rows])


class Layout(Protocol[B]):
    """The interface of a kind of batch; `len(batch)` is the number of its records."""

    def places(self, batch: B, source: str, /) -> Places:
        """Return the places of a batch that is not empty. Raises UnplacedRecords."""
        ...

    def slice(self, batch: B, start: int, stop: int, /) -> B:
        """Return the records from `start` to before `stop`, without a copy where that can be."""
        ...

    def take(self, batch: B, rows: Ints, /) -> B:
        """Return some records, as a copy that keeps nothing of the batch alive."""
        ...


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Record batches with a column of partitions, texts or integers, dictionary or not, and one of positions."""

    partition: str = "_partition"
    position: str = "_offset"

    def places(self, batch: pa.RecordBatch, source: str, /) -> Places:
        """Return the places. Positions that are 64-bit integers and dictionary codes are not looked at by Python."""
        positions = self._column(batch, self.position, source)
        if not pa.types.is_integer(positions.type):
            raise UnplacedRecords(source=source, problem=f"the column {self.position!r} is of type {positions.type}")
        try:
            numbers: Ints = positions.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise UnplacedRecords(source=source, problem=f"the column {self.position!r}: {error}") from error
        if numbers.min() < 0:
            raise UnplacedRecords(source=source, problem=f"{numbers.min()} in the column {self.position!r}")
        names = self._column(batch, self.partition, source)
        if not pa.types.is_dictionary(names.type):
            names = names.dictionary_encode()
        kind = names.dictionary.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
            raise UnplacedRecords(source=source, problem=f"the column {self.partition!r} is of type {kind}")
        codes = names.indices.to_numpy()
        partitions = tuple(map(str, names.dictionary.to_pylist()))
        least = int(codes.min())
        if least == codes.max():
            return Places((partitions[least],), None, numbers)
        return Places(partitions, narrow(codes, len(partitions)), numbers)

    def slice(self, batch: pa.RecordBatch, start: int, stop: int, /) -> pa.RecordBatch:
        """Return a view."""
        return batch.slice(start, stop - start)

    def take(self, batch: pa.RecordBatch, rows: Ints, /) -> pa.RecordBatch:
        """Return a copy."""
        return batch.take(pa.array(rows))

    def _column(self, batch: pa.RecordBatch, name: str, source: str) -> Any:
        at = batch.schema.get_all_field_indices(name)
        if len(at) != 1:
            raise UnplacedRecords(source=source, problem=f"it has {len(at)} columns named {name!r}")
        column = batch.column(at[0])
        if column.null_count or (pa.types.is_dictionary(column.type) and column.dictionary.null_count):
            raise UnplacedRecords(source=source, problem=f"a value of the column {name!r} is missing")
        return column


@dataclass(frozen=True, slots=True)
class Pairs:
    """Lists of `(record, (partition, position))`, for records that are Python objects."""

    def places(self, batch: list[tuple[Any, tuple[str | int, int]]], source: str, /) -> Places:
        """Return the places."""
        codes: dict[str, int] = {}
        found: list[int] = []
        for _, (partition, position) in batch:
            known = isinstance(partition, str) or type(partition) is int
            if not known or type(position) is not int or not 0 <= position <= _LARGEST:
                raise UnplacedRecords(source=source, problem=f"a record is at {(partition, position)!r}")
            found.append(codes.setdefault(str(partition), len(codes)))
        positions = np.array([position for _, (_, position) in batch], np.int64)
        return Places(tuple(codes), narrow(np.array(found), len(codes)) if len(codes) > 1 else None, positions)

    def slice(
        self, batch: list[tuple[Any, tuple[str | int, int]]], start: int, stop: int, /
    ) -> list[tuple[Any, tuple[str | int, int]]]:
        """Return the records in a list of their own."""
        return batch[start:stop]

    def take(
        self, batch: list[tuple[Any, tuple[str | int, int]]], rows: Ints, /
    ) -> list[tuple[Any, tuple[str | int, int]]]:
        """Return the records in a list of their own."""
        return [batch[row] for row in rows.tolist()]


def narrow(numbers: npt.NDArray[Any], many: int) -> Numbers:
    """Return numbers from 0 to below `many`, as narrow as can be sorted faster for it.

    >>> narrow(np.array([0, 2, 1]), 3).dtype, narrow(np.array([0, 2, 1]), 2**16 + 1).dtype
    (dtype('uint16'), dtype('int64'))
    """
    return numbers.astype(np.uint16) if many <= 1 << 16 else numbers.astype(np.int64)
