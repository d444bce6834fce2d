"""What every table asks before it takes a commit: that the span, the staged files and the flow's history are right.

Invariant: a commit has rows of its own epochs alone, and of those whose files it takes out; its files are as they
were staged; one that moves no upper changes no rows, as far as their number tells. It is added only to a table whose
digest is that of the history before it. A table without one, written by a version without digests, is accepted, and
has one from then on.

>>> old = StagedFile("part-0.parquet", rows=1, bytes=90, first_epoch=3, last_epoch=4)
>>> new = StagedFile("part-1.parquet", rows=1, bytes=80, first_epoch=3, last_epoch=4)
>>> check_span(3, 5, [old])
>>> check_span(5, 5, [new], remove=[old])
>>> in_line(History())
True
"""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from typing import Final

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import HistoriesDiffer, other_way
from tidegauge.errors.sinks import FileNotHeld, MisplacedRows, StagedFileMissing
from tidegauge.objects.path import ObjectStatus
from tidegauge.remap.history import History, agree
from tidegauge.sinks.location import inside
from tidegauge.sinks.protocol import OutputId, StagedFile, Table

__all__ = ["LIMIT", "all_staged", "check_span", "expect", "in_line", "staged_status", "still_to_do"]

LIMIT: Final = 64 * 1024
"""Characters of links that a commit carries itself; more of them go into a file beside it."""


def in_line(history: History, *, limit: int = LIMIT) -> bool:
    """Whether a commit carries the links of a history itself."""
    return sum(map(len, history.lines)) + len(history.lines) <= limit  # each line and its end


def expect(table: Table, output: OutputId, history: History, *, mendable: bool = True) -> None:
    """Raise `HistoriesDiffer` when the table was committed with another history than that before this one.

    mendable: whether anything can be taken out of it.
    """
    kept = table.digest
    if kept is not None and history.before and not agree(kept, history.before):
        at = table.upper
        other = other_way(output.output, "EPOCH", mendable=mendable)
        raise HistoriesDiffer(flow=output.flow, output=output.output, store=at, table=at, parted="EPOCH", other=other)


def check_span(
    lower: int,
    upper: int,
    files: Sequence[StagedFile],
    *,
    remove: Sequence[StagedFile] = (),
    partition: Sequence[str] = (),
) -> None:
    """Raise unless `[lower, upper)` is a span of epochs and every row of the files belongs to it.

    Rows of the epochs of removed files belong to it too. A commit that removes files may have no epochs of its own.
    partition: the columns that each file is to have one value in.
    """
    if not (0 <= lower < upper or (remove and 0 < lower == upper)):
        expected = "0 <= lower < upper, or lower == upper and files to remove"
        raise InvalidArgument(parameter="the span", value=[lower, upper], expected=expected)
    if len({file.path for file in remove}) < len(remove):
        paths = [file.path for file in remove]
        raise InvalidArgument(parameter="remove", value=paths, expected="each file once")
    first = min([lower, *(file.first_epoch for file in remove)])
    for file in files:
        if not first <= file.first_epoch <= file.last_epoch < upper:
            found = f"of the epochs {file.first_epoch} to {file.last_epoch}"
            raise MisplacedRows(found=found, expected=f"the epochs [{first}, {upper}) of the commit")
        if [name for name, _ in file.partition] != list(partition):
            expected = (
                f"files with values of {', '.join(partition)}" if partition else "files without partition values"
            )
            raise InvalidArgument(parameter="files", value=file.partition, expected=expected)
    put, taken = sum(file.rows for file in files), sum(file.rows for file in remove)
    if lower == upper and put != taken:
        expected = f"{taken} rows, as many as it takes out: a commit that moves no upper changes none"
        raise InvalidArgument(parameter="files", value=put, expected=expected)


def still_to_do(
    files: Sequence[str], remove: Sequence[StagedFile], held: Container[str], *, table: str, replaces: bool
) -> bool:
    """Return whether a table that holds these is still to be changed: False if a replacement was made already.

    held: the names of its files. files: the paths of the new files as the table would have them.
    replaces: whether the commit moves no upper.
    Raises `FileNotHeld` for a file to remove that the table does not hold.
    """
    missing = [file.path for file in remove if file.name not in held]
    if not missing:
        return True
    if replaces and files and len(missing) == len(remove) and all(path in held for path in files):
        return False
    raise FileNotHeld(table=table, path=missing[0])


def staged_status(table: str, file: StagedFile) -> os.stat_result | ObjectStatus:
    """Return the status of a staged file, or raise `StagedFileMissing` when it is not as it was staged."""
    try:
        status = inside(table, file.path).stat()
    except FileNotFoundError as error:
        raise StagedFileMissing(path=file.path, table=table, problem="is not there") from error
    if status.st_size != file.bytes:
        problem = f"has {status.st_size} bytes, of {file.bytes} that were staged"
        raise StagedFileMissing(path=file.path, table=table, problem=problem)
    return status


def all_staged(table: str, files: Sequence[StagedFile]) -> bool:
    """Whether all files are as they were staged."""
    try:
        for file in files:
            staged_status(table, file)
    except StagedFileMissing:
        return False
    return True
