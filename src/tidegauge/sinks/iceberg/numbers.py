"""The numbers of a table's columns, where tasks see them, for those that are not the numbers of a new table.

    _tidegauge/columns.json      {"user": 1, "_epoch": 3, "note": 4}

Tasks number the columns of their files as a new table would (`fields`). A table that has taken on columns has other
numbers, and the driver would have to write each file anew. So once it has had to, it tells tasks the numbers.

Invariant: nothing depends on it. A commit compares the numbers that a file says it has with those of the table.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     told = known_numbers(folder, ["note"])
...     keep_numbers(folder, {"user": 1, "_epoch": 2, "note": 3})
...     told, known_numbers(folder, ["note", "_epoch"]), known_numbers(folder, ["note", "more"])
(None, {'note': 3, '_epoch': 2}, None)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.sinks.iceberg.links import FOLDER
from tidegauge.sinks.location import at, put_whole

__all__ = ["keep_numbers", "known_numbers"]

_FILE: Final = "columns.json"


def keep_numbers(folder: str, ids: Mapping[str, int]) -> None:
    """Tell tasks the numbers of all columns of a table, by their paths. That they are not told is no error."""
    with suppress(OSError, TidegaugeError):
        put_whole(at(folder) / FOLDER / _FILE, json.dumps(ids).encode(), beside=f".{_FILE}-{os.getpid()}")


def known_numbers(folder: str, paths: Iterable[str]) -> dict[str, int] | None:
    """Return the numbers of columns that were told, None where some were not."""
    with suppress(OSError, TidegaugeError, ValueError, LookupError, TypeError):
        told = json.loads((at(folder) / FOLDER / _FILE).read_text(encoding="utf-8"))
        return {path: int(told[path]) for path in paths}
    return None
