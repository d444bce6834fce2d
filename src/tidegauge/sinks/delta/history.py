"""The flow's history that a Delta table keeps: a digest that outlives the log, links, and which commit brought what.

    _delta_log/...  txn "flow:output#digest"      the first 60 bits of the digest at the table's upper
    _delta_log/...  commitInfo                    the epochs of the commit, the whole digest, and its links if short
    _tidegauge/commit-000000000042-000000000050-<write>.jsonl      the links of a commit that has many
    _tidegauge/moved-000000000000-000000000107-<digest>.jsonl      links that were in entries of the log

Entries of the log go after 30 days, and transactions stay. So a commit keeps its digest as a transaction too, and
before old entries are removed their links are moved to a file. Whatever cleans a Delta table up (VACUUM of Spark and
of delta-rs, OPTIMIZE) leaves files in folders alone whose names begin with "_".

Invariants. From before a commit counts until the table is removed its links are in the folder or in the log, except
where somebody else removes entries of the log that are younger than the last move. An entry counts as a commit of
the output only when it carries both its span of epochs and the transaction of this life of the flow; whatever else
others commit, compact or clean up, an answer of `version_of` is never another's commit.

A link is true of the timeline whether the commit that was to carry it was made or not: it was bound before. So a
file may be written before its commit, and be there for nothing."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tidegauge.errors.history import DamagedHistory
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.remap.history import History, Link
from tidegauge.remap.rebuilding import pooled
from tidegauge.sinks.commits import in_line
from tidegauge.sinks.delta.head import lines_of
from tidegauge.sinks.location import TablePath, at, names_in, put_whole, writing
from tidegauge.sinks.protocol import OutputId

__all__ = [
    "FOLDER",
    "CommitSpan",
    "carried",
    "digest_id",
    "incarnation_in",
    "kept_links",
    "move_links",
    "number",
    "span_of",
    "text_of",
    "version_of",
]

pc: Final = library("pyarrow.compute")
pq: Final = library("pyarrow.parquet")

FOLDER: Final = "_tidegauge"
"""The folder beside the log. What cleans a table up leaves it alone."""
_DIGITS: Final = 15
_ENTRY: Final = re.compile(r"(\d{20})\.json", re.ASCII)
_FILE: Final = re.compile(r"(commit|moved)-(\d{12,19})-(\d{12,19})-[0-9A-Za-z-]+\.jsonl", re.ASCII)


@lru_cache(maxsize=64)  # every commit asks
def digest_id(output: OutputId) -> str:
    """Return the application id under which the digest is kept."""
    return f"{output}#digest"


def number(digest: str) -> int:
    """Return as much of a digest as an integer of Delta holds.

    >>> text_of(number("0123456789abcdef0123456789abcdef"))
    '0123456789abcde'
    """
    return int(digest[:_DIGITS], 16)


def text_of(version: int) -> str:
    """Return the digits from which `number` made the version of a transaction."""
    return f"{version:0{_DIGITS}x}"


def carried(table: str, history: History, *, lower: int, upper: int, write: str) -> dict[str, str]:
    """Return what the commit of `[lower, upper)` says of its history; links that are many are put into the folder."""
    if not history.digest:
        return {}
    if in_line(history):
        return {"digest": history.digest, "links": history.encode()}
    with writing(table):
        _write(table, "commit", history.links, lower, upper, write)
    return {"digest": history.digest}


def _links_in(lines: Iterable[str], output: OutputId, *, table: str, path: str) -> tuple[Link, ...]:
    """Return the links that an entry of the log carries. Raises `DamagedHistory`."""
    try:
        for line in lines:
            match json.loads(line):
                case {"commitInfo": {"flow": output.flow, "output": output.output, "links": str(text)}}:
                    return History.decode(text)
                case _:
                    continue
    except (ValueError, RecursionError) as error:
        raise DamagedHistory(table=table, path=path, detail=str(error)) from error
    return ()


def kept_links(table: str, output: OutputId) -> list[Link]:
    """Return all links that the table has, in its folder and in its log."""
    found = list[Link]()
    for path in sorted(_files(table), key=str):
        try:
            found += History.decode(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DamagedHistory(table=table, path=str(path), detail=str(error)) from error
    for _, links in _entries(table, output, moved=-1):
        found += links
    return found


def move_links(table: str, output: OutputId) -> None:
    """Bring the links that are in the log alone into the folder, as one file; before entries of it are removed."""
    names = [found for path in _files(table) if (found := _FILE.fullmatch(path.name)) and found[1] == "moved"]
    moved = max((int(found[3]) - 1 for found in names), default=-1)
    pool = pooled(link for _, some in _entries(table, output, moved=moved) for link in some)
    links = [link for epoch in sorted(pool) for link in pool[epoch].values()]
    if links:
        _write(table, "moved", links, links[0].epoch, links[-1].epoch + 1, links[-1].digest)


def incarnation_in(table: str, output: str) -> str | None:
    """Return the incarnation in the newest transaction `output@incarnation`: of the log, then of its checkpoints.

    delta-rs answers for a name that is known, and this one is not.
    """
    log, mark = at(table) / "_delta_log", f"{output}@"
    try:
        names = sorted(names_in(log), reverse=True)
    except FileNotFoundError:
        return None
    for name in (name for name in names if _ENTRY.fullmatch(name)):
        with suppress(FileNotFoundError, ValueError, RecursionError):
            for line in lines_of(log / name):
                match json.loads(line):
                    case {"txn": {"appId": str(owner)}} if owner.startswith(mark):
                        return owner.removeprefix(mark)
                    case _:
                        continue
    for name in (name for name in names if name.endswith(".parquet") and ".checkpoint." in name):
        found = pq.read_table(readable(log / name), columns=["txn.appId"]).column("txn").combine_chunks()
        for owner in pc.struct_field(found, "appId").to_pylist():
            if owner is not None and owner.startswith(mark):
                return str(owner).removeprefix(mark)
    return None


def _write(table: str, kind: str, links: Iterable[Link], lower: int, upper: int, mark: str) -> None:
    """Write links into a file of the folder, in whole or not at all."""
    name = f"{kind}-{lower:012d}-{upper:012d}-{mark}.jsonl"
    beside = f".{name}-{os.getpid()}"  # a driver and a command may move links at once
    put_whole(at(table) / FOLDER / name, History(tuple(links)).encode().encode(), beside=beside)


def _files(table: str) -> Iterator[TablePath]:
    with suppress(FileNotFoundError):
        folder = at(table) / FOLDER
        yield from (folder / name for name in names_in(folder) if _FILE.fullmatch(name))


def _entries(table: str, output: OutputId, *, moved: int) -> Iterator[tuple[int, tuple[Link, ...]]]:
    """Yield the links of the log's entries, newest first, until those of the epoch `moved` are met."""
    log = at(table) / "_delta_log"
    versions: list[Any] = []
    with suppress(FileNotFoundError):
        versions = sorted(
            (int(found[1]) for name in names_in(log) if (found := _ENTRY.fullmatch(name))), reverse=True
        )
    for version in versions:
        path = log / f"{version:020d}.json"
        try:
            lines = lines_of(path)
        except FileNotFoundError:
            continue  # removed meanwhile
        links = _links_in(lines, output, table=table, path=str(path))
        if links and links[-1].epoch <= moved:
            return
        yield version, links


def version_of(
    log: TablePath, output: OutputId, life: str, epoch: int, *, newest: int, replaced: int = -1
) -> int | None:
    """Return the version whose commit holds `epoch`, or None when no entry up to `newest` is known to.

    log: the table's `_delta_log`. life: the application id of the output in this life of the flow. replaced: the
    version at which all rows were replaced; those before brought nothing that is there. Raises `OSError` where
    entries cannot be read.

    The output's commits follow each other in the log as their epochs do, so the entry is found by bisection. Entries
    of others lie between them: where one is met, the next of ours below it is asked. Every entry that was read, and
    found to be another's or not the one, is ruled out, so each is read at most once, and O(log n) of n where all are
    ours.
    """
    versions = sorted(int(found[1]) for name in names_in(log) if (found := _ENTRY.fullmatch(name)))
    low, high = bisect_left(versions, replaced), bisect_left(versions, newest + 1)
    while low < high:
        middle = (low + high) // 2
        place, span = middle, None
        while place >= low and (span := span_of(log / f"{versions[place]:020d}.json", output, life)) is None:
            place -= 1
        if span is None or epoch >= span[1]:
            low = middle + 1
        elif epoch < span[0]:
            high = place
        else:
            return versions[place]
    return None


class CommitSpan(NamedTuple):
    """What an entry of the output says: its epochs `[lower, upper)`, whether it took files out, and the first and the
    last epoch of its changes by key, where it has any."""

    lower: int
    upper: int
    takes_out: bool
    changes: tuple[int, int] | None


def span_of(entry: TablePath, output: OutputId, life: str) -> CommitSpan | None:
    """Return what an entry says; None when it is not the output's own, or only replaces files."""
    span: tuple[int, int] | None = None
    changes: tuple[int, int] | None = None
    last: int | None = None
    takes_out = False
    with suppress(FileNotFoundError, ValueError, RecursionError):  # cleaned up meanwhile, or nothing that we wrote
        for line in lines_of(entry):
            action = json.loads(line)
            match action:
                case {"commitInfo": {"flow": output.flow, "output": output.output, "lower": int(), "upper": int()}}:
                    about = action["commitInfo"]
                    span = about["lower"], about["upper"]
                    match about:
                        case {"changes": [int(first), int(final)]}:
                            changes = first, final
                        case _:
                            continue
                case {"txn": {"appId": str() as owner, "version": int() as version}} if owner == life:
                    last = version
                case {"remove": _}:
                    takes_out = True
    if span is None or last != span[1] - 1 or span[0] >= span[1]:
        return None
    return CommitSpan(*span, takes_out, changes)
