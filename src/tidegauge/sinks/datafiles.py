"""A data file of a table, as tasks stage it and as the log of its table names it; and how much several hold together.

Invariant: `decode` gives back the file that `encode` was given, also one that an older version encoded.

>>> file = StagedFile("part-0.parquet", rows=3, bytes=100, first_epoch=4, last_epoch=5)
>>> StagedFile.decode(file.encode()) == file
True
>>> Volume.of([file, file]) - Volume.of([file])
Volume(files=1, rows=3, bytes=100)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidegauge.sinks.layout.values import PartitionValues

__all__ = ["StagedFile", "Volume"]


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A data file: its path relative to the table, what it holds, and the first and last epoch of its rows.

    statistics: what readers skip files by, as the text that the table's log carries; "" where the sink keeps none.
    partition: the values of the table's partition columns that all its rows have, in the table's order, as the text
    that the table's log carries; empty for a table without partitions.
    deletions: which of the rows that it has are deleted, as text that `sinks.vectors` reads; "" for none. `rows` are
    those that are left.
    """

    path: str
    rows: int
    bytes: int
    first_epoch: int
    last_epoch: int
    statistics: str = ""
    partition: PartitionValues = ()
    deletions: str = ""

    @property
    def name(self) -> str:
        """What tells it from other files, and from itself with other rows deleted."""
        return self.path + self.deletions

    def encode(self) -> dict[str, Any]:
        """Return the file as JSON data."""
        return {name: value for name, value in asdict(self).items() if value not in ("", ())}

    @staticmethod
    def decode(data: Mapping[str, Any]) -> StagedFile:
        """Return the file that `encode` described."""
        return StagedFile(
            path=str(data["path"]),
            rows=int(data["rows"]),
            bytes=int(data["bytes"]),
            first_epoch=int(data["first_epoch"]),
            last_epoch=int(data["last_epoch"]),
            statistics=str(data.get("statistics", "")),
            partition=tuple((str(name), value) for name, value in data.get("partition", [])),
            deletions=str(data.get("deletions", "")),
        )


@dataclass(frozen=True, slots=True)
class Volume:
    """How much a table holds."""

    files: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Volume) -> Volume:
        return Volume(self.files + other.files, self.rows + other.rows, self.bytes + other.bytes)

    def __sub__(self, other: Volume) -> Volume:
        return Volume(self.files - other.files, self.rows - other.rows, self.bytes - other.bytes)

    @staticmethod
    def of(files: Sequence[StagedFile]) -> Volume:
        """Return what data files hold together."""
        return Volume(len(files), sum(file.rows for file in files), sum(file.bytes for file in files))
