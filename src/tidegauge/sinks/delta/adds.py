"""What a Delta table's log says of each file of a version, word for word, as the entry that added the file has it.

delta-rs tells files without their deletion vectors. To mark rows of a file is to put all else that the log says
of the file into the log once more; and to take the file out is to name its vector.

Invariant: a file is in the answer once, with what the last entry said that added it; it is not if an entry has taken
it out since. Which vector the file had before does not matter.

>>> marked = {"path": "a", "deletionVector": {"storageType": "i", "pathOrInlineDv": "x"}}
>>> taken_in({"a": {"path": "a"}, "b": {"path": "b"}}, [{"add": marked}, {"remove": {"path": "a"}}]) == {
...     "a": marked, "b": {"path": "b"}}
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.delta.head import Action, actions_of, checkpoint_before, entry
from tidegauge.sinks.location import TablePath, at, names_in

__all__ = ["FEATURE", "adds_at", "may_have_vectors", "taken_in", "vectors_in"]

pq: Final[Any] = library("pyarrow.parquet")

FEATURE: Final = "deletionVectors"
"""Delta's name for the feature of readers and of writers."""


def may_have_vectors(table: DeltaTable) -> bool:
    """Whether files of a table may have deletion vectors."""
    return FEATURE in (table.protocol().reader_features or [])


def vectors_in(table: DeltaTable, folder: str) -> dict[str, Mapping[str, Any]]:
    """Return the deletion vectors of a snapshot's files, by the paths of these. Raises as `adds_at` does."""
    if not may_have_vectors(table):
        return {}
    found = adds_at(at(folder) / "_delta_log", table.version())
    return {path: add["deletionVector"] for path, add in found.items() if add.get("deletionVector")}


def adds_at(log: TablePath, version: int) -> dict[str, Action]:
    """Return what a log says of each file of a version, by its path in the table's folder.

    Raises `OSError`, and `ValueError` for what cannot be read.
    """
    checkpoint, files = checkpoint_before(names_in(log), version)
    found = taken_in({}, (action for name in files for action in _in_checkpoint(log / name)))
    for later in range(checkpoint + 1, version + 1):
        found = taken_in(found, actions_of(entry(log, later)))
    return found


def taken_in(found: dict[str, Action], actions: Iterable[Action]) -> dict[str, Action]:
    """Take in what an entry says, in whatever order: a file that it takes out and adds is there, as it adds it."""
    said = list(actions)
    for action in said:
        if "remove" in action:
            found.pop(str(action["remove"]["path"]), None)
    found.update((str(action["add"]["path"]), action["add"]) for action in said if "add" in action)
    return found


def _in_checkpoint(path: TablePath) -> Iterator[Action]:
    """Yield the files that one file of a checkpoint adds, and those of the files that it names in turn."""
    if path.name.endswith(".json"):
        for action in actions_of(path):
            yield from _within(path, {name: [value] for name, value in action.items()})
        return
    try:
        with pq.ParquetFile(readable(path)) as opened:
            wanted = [name for name in ("add", "sidecar") if name in opened.schema_arrow.names]
            rows = opened.read(columns=wanted)
    except pa.ArrowException as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    names = rows.schema.names
    yield from _within(path, {n: rows.column(n).drop_null().to_pylist(maps_as_pydicts="lossy") for n in names})


def _within(path: TablePath, said: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Action]:
    for add in said.get("add", ()):
        there = {name: value for name, value in add.items() if value is not None and not name.endswith("_parsed")}
        yield {"add": {**there, "path": unquote(str(add["path"]))}}
    for sidecar in said.get("sidecar", ()):
        yield from _in_checkpoint(path.parent / "_sidecars" / str(sidecar["path"]))
