"""Files of a table's metadata on a disk, written as a catalog asks for them, and there after a power failure.

pyiceberg leaves it to the operating system when they reach the disk. The catalog's database does not, so after a
power failure it might name a file that is empty.

Invariant: a file that was closed is on the disk, and so is its name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from tidegauge.sinks.location import make_folder, synchronise

__all__ = ["DurableFileIO"]


class DurableFileIO(PyArrowFileIO):
    """Reads as pyiceberg does, and synchronises what it writes."""

    def new_output(self, location: str) -> Any:
        """Return a file that is yet to be written."""
        scheme, _, path = self.parse_location(location)
        return _DurableFile(location, Path(path)) if scheme == "file" else super().new_output(location)


class _DurableFile(OutputFile):
    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        return self._path.exists()

    def to_input_file(self) -> Any:
        return PyArrowFileIO().new_input(self.location)

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's signature
        make_folder(self._path.parent)
        return _DurableStream(self._path, "wb" if overwrite else "xb")


class _DurableStream:
    def __init__(self, path: Path, mode: str) -> None:
        self._path = path
        self._file = open(path, mode)  # noqa: SIM115 - closed by `close`

    def __enter__(self) -> _DurableStream:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def write(self, data: bytes) -> int:
        return int(self._file.write(data))

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            synchronise(self._path.parent)
