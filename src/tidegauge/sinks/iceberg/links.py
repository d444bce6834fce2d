"""The links of a flow's history that a table of Iceberg keeps: a file for each commit, in a folder beside its data.

    _tidegauge/commit-000000000042-000000000050-<write>.jsonl

What keeps a table of Iceberg short forgets snapshots, with all that their commits said; and what tidies its folder
(`remove_orphan_files`) leaves names that begin with "_" alone. So links are in neither of the places where it cleans.

Invariant: a link is true of the timeline whether its commit was made or not: it was bound before. So a file is
written before its commit, and may be there for nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from tidegauge.errors.history import DamagedHistory
from tidegauge.remap.history import History, Link
from tidegauge.sinks.location import TablePath, at, names_in, put_whole, writing

__all__ = ["FOLDER", "keep_links", "kept_links"]

FOLDER: Final = "_tidegauge"
_FILE: Final = re.compile(r"commit-\d{12,19}-\d{12,19}-[0-9A-Za-z-]+\.jsonl", re.ASCII)


def keep_links(folder: str, history: History, *, lower: int, upper: int, write: str) -> None:
    """Keep the links of the commit of `[lower, upper)`, before it is made."""
    if history.links:
        name = f"commit-{lower:012d}-{upper:012d}-{write}.jsonl"
        with writing(folder):
            put_whole(at(folder) / FOLDER / name, history.encode().encode(), beside=f".{name}-{os.getpid()}")


def kept_links(folder: str) -> list[Link]:
    """Return all links that the table has. Raises `DamagedHistory`."""
    found = list[Link]()
    for path in sorted(_files(folder), key=str):
        try:
            found += History.decode(path.read_text(encoding="utf-8"))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedHistory(table=folder, path=str(path), detail=str(error)) from error
    return found


def _files(folder: str) -> Iterator[TablePath]:
    with suppress(FileNotFoundError):
        place = at(folder) / FOLDER
        yield from (place / name for name in names_in(place) if _FILE.fullmatch(name))
