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
from typing import Any

import pyarrow as pa

from tidegauge.sinks.commits import staged_status
from tidegauge.sinks.delta.head import actions_of, entry
from tidegauge.sinks.location import TablePath, put_new
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.statistics import suited

__all__ = ["changing", "described", "made", "put", "was_written_by"]


def changing(
    files: Iterable[tuple[StagedFile, int, str]],
    gone: Sequence[StagedFile],
    transactions: Mapping[str, int],
    said: Mapping[str, Any],
    *,
    milliseconds: int,
    rows: bool = True,
    anew: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return an entry that takes files out and puts others in, each with when it was written and its statistics.

    said: what `commitInfo` has for people and for us. milliseconds: the time of the commit. rows: whether it changes
    any; readers that follow a table's rows pass over an entry that does not. anew: actions that describe the table
    otherwise than before.
    """
    mode = "Overwrite" if gone else "Append"
    operation = {"operation": "WRITE", "operationParameters": {"mode": mode}}
    if not rows:
        operation = {"operation": "OPTIMIZE", "operationParameters": {}}
    about = {"timestamp": milliseconds, **operation}
    actions: list[Mapping[str, Any]] = [{"commitInfo": {**about, "engineInfo": "Tidegauge", **said}}, *anew]
    actions += [{"txn": {"appId": owner, "version": version}} for owner, version in transactions.items()]
    actions += [
        {
            "add": {
                "path": file.path,
                "partitionValues": dict(file.partition),
                "size": file.bytes,
                "modificationTime": changed,
                "dataChange": rows,
                "stats": statistics,
            }
        }
        for file, changed, statistics in files
    ]
    actions += [
        {
            "remove": {
                "path": file.path,
                "deletionTimestamp": milliseconds,
                "dataChange": rows,
                "extendedFileMetadata": True,
                "partitionValues": dict(file.partition),
                "size": file.bytes,
            }
        }
        for file in gone
    ]
    return _text(actions)


def _text(actions: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(action, ensure_ascii=False, separators=(',', ':'))}\n" for action in actions)


def described(
    folder: str, files: Iterable[StagedFile], columns: pa.Schema, configuration: Mapping[str, str]
) -> list[tuple[StagedFile, int, str]]:
    """Return files as an entry has them: with when they were written, in milliseconds, and their statistics.

    Raises `StagedFileMissing`.
    """
    return [
        (
            file,
            staged_status(folder, file).st_mtime_ns // 1_000_000,
            suited(file.statistics, columns, configuration),
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
