"""What every table asks before it takes a commit: that the span, the staged files and the flow's history are right.

Invariant: a commit has rows of its own epochs alone, of files that are as they were staged, and is added only to a
table whose digest is that of the history before it. A table without one, written by a version without digests, is
accepted, and has one from then on.

>>> check_span(3, 5, [StagedFile("part-0.parquet", rows=1, bytes=90, first_epoch=3, last_epoch=4)])
>>> in_line(History())
True
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import HistoriesDiffer, other_way
from tidegauge.errors.sinks import MisplacedRows, StagedFileMissing
from tidegauge.remap.history import History, agree
from tidegauge.sinks.location import inside
from tidegauge.sinks.protocol import OutputId, StagedFile, Table

__all__ = ["LIMIT", "check_span", "expect", "in_line", "staged_status"]

LIMIT: Final = 64 * 1024
"""Characters of links that a commit carries itself; more of them go into a file beside it."""


def in_line(history: History, *, limit: int = LIMIT) -> bool:
    """Whether a commit carries the links of a history itself."""
    return len(history.encode()) <= limit


def expect(table: Table, output: OutputId, history: History, *, mendable: bool = True) -> None:
    """Raise `HistoriesDiffer` when the table was committed with another history than that before this one.

    mendable: whether anything can be taken out of it.
    """
    kept = table.digest
    if kept is not None and history.before and not agree(kept, history.before):
        at = table.upper
        other = other_way(output.output, "EPOCH", mendable=mendable)
        raise HistoriesDiffer(flow=output.flow, output=output.output, store=at, table=at, parted="EPOCH", other=other)


def check_span(lower: int, upper: int, files: Sequence[StagedFile]) -> None:
    """Raise unless `[lower, upper)` is a span of epochs and every row of the files belongs to it."""
    if not 0 <= lower < upper:
        raise InvalidArgument(parameter="the span", value=[lower, upper], expected="0 <= lower < upper")
    for file in files:
        if not lower <= file.first_epoch <= file.last_epoch < upper:
            found = f"of the epochs {file.first_epoch} to {file.last_epoch}"
            raise MisplacedRows(found=found, expected=f"the epochs [{lower}, {upper}) of the commit")


def staged_status(table: str, file: StagedFile) -> os.stat_result:
    """Return the status of a staged file, or raise `StagedFileMissing` when it is not as it was staged."""
    try:
        status = inside(table, file.path).stat()
    except FileNotFoundError as error:
        raise StagedFileMissing(path=file.path, table=table, problem="is not there") from error
    if status.st_size != file.bytes:
        problem = f"has {status.st_size} bytes, of {file.bytes} that were staged"
        raise StagedFileMissing(path=file.path, table=table, problem=problem)
    return status
