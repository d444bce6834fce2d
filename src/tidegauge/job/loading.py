"""A task of a load: the rows of some splits become a file that is staged.

Invariant: a task stages all rows of its splits, or raises; the first record that cannot be read ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.errors.loads import FileChangedMeanwhile, FileNotLoadable, NoSuchColumns, ValuesInFolders
from tidegauge.errors.sources import UnreadableFile
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sources.batches.writing import write_part
from tidegauge.sources.file.once import has_columns, rows_of_split
from tidegauge.sources.file.reading import FileSplit
from tidegauge.sources.formats.json import Json
from tidegauge.sources.formats.parquet import Parquet
from tidegauge.sources.formats.protocol import Format
from tidegauge.sources.protocol import BadRecord
from tidegauge.sources.staging import StagingPath

__all__ = ["LoadTask", "load_tasks", "named"]

_WEIGHT: Final = 64 << 20
"""About how many bytes a task reads."""
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""How the folder of rows without a value is named."""


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Puts the rows of some splits into a folder. addresses: of their files, by the splits' partitions."""

    splits: tuple[FileSplit, ...]
    format: Format
    folder: StagingPath
    addresses: Mapping[str, str]

    def __call__(self) -> list[StagedFile]:
        """Stage them.

        Raises `FileNotLoadable`, `FileChangedMeanwhile`, `NoSuchColumns`, `ValuesInFolders`, what object stores
        refuse, and `OSError` of the folder.
        """
        file = write_part(self.folder, chain.from_iterable(map(self._rows, self.splits)))
        return [] if file is None else [StagedFile(file.name, file.rows, file.size, 0, 0)]

    def _rows(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        address = self.addresses[split.partition]
        outside = [name for name in split.schema.names if _in_folder(name, address)]
        rows, values = 0, not isinstance(self.format, Json | Parquet)  # a CSV has a header, which was looked at

        def refuse(bad: BadRecord) -> None:
            detail = f"the record at {bad.position}: {bad.message}"
            raise FileNotLoadable(path=address, detail=detail)

        try:
            for batch in rows_of_split(split, self.format, refuse):
                rows += batch.num_rows
                values = values or any(column.null_count < batch.num_rows for column in batch.columns)
                outside = [name for name in outside if batch[name].null_count == batch.num_rows]
                yield batch
            if rows and outside:
                raise ValuesInFolders(path=address, rows=rows, column=outside[0])
            if rows and not values and not (isinstance(self.format, Parquet) and has_columns(split)):
                raise NoSuchColumns(path=address, rows=rows, columns=", ".join(split.schema.names))
        except (TidegaugeError, OSError) as error:
            raise named(error, split.file.path, address) from error


def _in_folder(column: str, address: str) -> bool:
    """Whether a folder is named after a value of a column, other than null.

    >>> _in_folder("year", "/in/year=2024/a.csv"), _in_folder("year", f"/in/year={_NULL}/a.csv")
    (True, False)
    >>> _in_folder("year", "/in/year=1.csv"), _in_folder("year", "/in/month=1/a.csv")
    (False, False)
    """
    begin = f"{column.lower()}="
    return any(step.lower().startswith(begin) and step[len(begin) :] != _NULL for step in address.split("/")[:-1])


def named(error: TidegaugeError | OSError, path: str, address: str) -> TidegaugeError:
    """Return an error of a file as that of a load. path: where it was read, if that is another place."""
    if isinstance(error, UnreadableFile):
        said = f"{error.evidence['detail']} ({error.evidence['problem']})"
    elif isinstance(error, FileChangedMeanwhile):
        return FileChangedMeanwhile(path=address, detail=str(error.evidence["detail"]).replace(path, address))
    elif isinstance(error, OSError):
        said = brief(error)
    else:
        return error
    return FileNotLoadable(path=address, detail=said.replace(path, address))


def load_tasks(
    splits: Sequence[FileSplit], *, format: Format, folder: StagingPath, addresses: Mapping[str, str]
) -> list[LoadTask]:
    """Deal splits out to tasks, small ones together."""
    tasks: list[LoadTask] = []
    held: list[FileSplit] = []
    for split in splits:
        if held and sum(one.weight for one in held) + split.weight > _WEIGHT:
            tasks.append(LoadTask(tuple(held), format, folder, addresses))
            held = []
        held.append(split)
    return [*tasks, LoadTask(tuple(held), format, folder, addresses)] if held else tasks
