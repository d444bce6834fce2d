"""An entry of a Delta table's log: what it says, and how it gets there if and only if nobody else's is there.

Invariant: an entry is in the log whole, or its name is free, and the first one stays (`location.put_new`).

>>> import os, tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     print(put(Path(folder), 7, "ours", mark="1"), put(Path(folder), 7, "theirs", mark="2"))
...     print(sorted(os.listdir(folder)), entry(Path(folder), 7).read_text())
True False
['00000000000000000007.json'] ours
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from tidegauge.sinks.commits import staged_status
from tidegauge.sinks.delta.head import Action, actions_of, entry
from tidegauge.sinks.location import TablePath, put_new
from tidegauge.sinks.protocol import OutputId, StagedFile
from tidegauge.sinks.statistics import loosened, suited
from tidegauge.sinks.vectors import count_of, descriptor_of

__all__ = ["MarkedFile", "about_span", "changing", "described", "made", "put", "was_written_by"]

_SAFE: Final = "/=:+,;@!$&'()*"
"""Signs that an address may have in its path."""


@dataclass(frozen=True, slots=True)
class MarkedFile:
    """A file of the table that loses rows. added: what its log says of it, word for word.

    before, after: the file without these deletions, and with them.
    """

    before: StagedFile
    after: StagedFile
    added: Action

    @property
    def action(self) -> dict[str, Any]:
        """What the log says of it with its deletions. Its statistics are ends still, of rows that may be gone."""
        return {
            **{name: value for name, value in self.added.items() if value is not None},
            "path": _in_log(self.after.path),
            "dataChange": True,
            "stats": loosened(self.added.get("stats") or "", self.after.rows + count_of(self.after.deletions)),
            "deletionVector": descriptor_of(self.after.deletions),
        }


def about_span(
    output: OutputId, lower: int, upper: int, *, write: str, changes: tuple[int, int] | None
) -> dict[str, Any]:
    """Return what an entry says of the epochs `[lower, upper)` that it brings, for people and for `delta.history`.

    write: the attempt. changes: the first and the last epoch of changes by key that come with it.
    """
    said = {"flow": output.flow, "output": output.output, "lower": lower, "upper": upper, "write": write}
    return said if changes is None else {**said, "changes": list(changes)}


def changing(
    files: Iterable[tuple[StagedFile, int, str]],
    gone: Sequence[StagedFile],
    transactions: Mapping[str, int],
    said: Mapping[str, Any],
    *,
    milliseconds: int,
    rows: bool = True,
    anew: Sequence[Mapping[str, Any]] = (),
    marked: Sequence[MarkedFile] = (),
) -> str:
    """Return an entry that takes files out and puts others in, each with when it was written and its statistics.

    said: what `commitInfo` has for people and for us. milliseconds: the time of the commit. rows: whether it changes
    any; readers that follow a table's rows pass over an entry that does not. anew: actions that describe the table
    otherwise than before. marked: files that lose rows.
    """
    mode = "Overwrite" if gone or marked else "Append"
    operation = {"operation": "WRITE", "operationParameters": {"mode": mode}}
    if not rows:
        operation = {"operation": "OPTIMIZE", "operationParameters": {}}
    about = {"timestamp": milliseconds, **operation}
    actions: list[Mapping[str, Any]] = [{"commitInfo": {**about, "engineInfo": "Tidegauge", **said}}, *anew]
    actions += [{"txn": {"appId": owner, "version": version}} for owner, version in transactions.items()]
    actions += [
        {
            "add": {
                "path": _in_log(file.path),
                "partitionValues": dict(file.partition),
                "size": file.bytes,
                "modificationTime": changed,
                "dataChange": rows,
                "stats": statistics,
            }
        }
        for file, changed, statistics in files
    ]
    actions += [{"add": file.action} for file in marked]
    actions += [
        {
            "remove": {
                "path": _in_log(file.path),
                "deletionTimestamp": milliseconds,
                "dataChange": rows,
                "extendedFileMetadata": True,
                "partitionValues": dict(file.partition),
                "size": file.bytes,
                **({"deletionVector": descriptor_of(file.deletions)} if file.deletions else {}),
            }
        }
        for file in (*gone, *(one.before for one in marked))
    ]
    return _text(actions)


def _in_log(path: str) -> str:
    """Return a path as the log has it: as Java writes addresses, for Spark compares them as texts.

    >>> _in_log("country=a%2Fb/part-0.parquet"), _in_log("country=ü x/part-0.parquet")
    ('country=a%252Fb/part-0.parquet', 'country=ü%20x/part-0.parquet')
    """
    return "".join(one if not one.isascii() and one.isprintable() else quote(one, safe=_SAFE) for one in path)


def _text(actions: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(action, ensure_ascii=False, separators=(',', ':'))}\n" for action in actions)


def described(
    folder: str, files: Iterable[StagedFile], stored: pa.Schema, configuration: Mapping[str, str]
) -> list[tuple[StagedFile, int, str]]:
    """Return files as an entry has them: with when they were written, in milliseconds, and their statistics.

    stored: the columns that are in the files. Raises `StagedFileMissing`.
    """
    return [
        (
            file,
            staged_status(folder, file).st_mtime_ns // 1_000_000,
            suited(file.statistics, stored, configuration),
        )
        for file in files
    ]


def made(log: TablePath, version: int, text: str, *, write: str) -> bool:
    """Make `text` the entry of a version; False when somebody else has made one."""
    return put(log, version, text, mark=write) or was_written_by(entry(log, version), write)


def put(log: TablePath, version: int, text: str, *, mark: str) -> bool:
    """Make `text` the entry of a version, durably; False when the version has one. `mark` names the attempt."""
    return put_new(entry(log, version), text.encode(), beside=f"_commit_{mark}.json.tmp")


def was_written_by(path: TablePath, write: str) -> bool:
    """Whether an entry is there and is the one of this attempt."""
    try:
        return any(action.get("commitInfo", {}).get("write") == write for action in actions_of(path))
    except (FileNotFoundError, ValueError, AttributeError):
        return False
