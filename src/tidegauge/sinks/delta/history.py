"""Which commit of a Delta table brought an epoch, asked of the entries that its log still has.

Invariant: an entry counts as a commit of the output only when it carries both its span of epochs and the transaction
of this life of the flow; whatever else others commit, compact or clean up, an answer is never another's commit.

The output's commits follow each other in the log as their epochs do, so the entry is found by bisection. Entries of
others lie between them: where one is met, the next of ours below it is asked. Every entry that was read, and found to
be another's or not the one, is ruled out, so each is read at most once, and O(log n) of n where all are ours.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidegauge.sinks.protocol import OutputId

__all__ = ["version_of"]

_ENTRY: Final = re.compile(r"(\d{20})\.json", re.ASCII)


def version_of(log: Path, output: OutputId, life: str, epoch: int, *, newest: int) -> int | None:
    """Return the version whose commit holds `epoch`, or None when no entry up to `newest` is known to.

    log: the table's `_delta_log`. life: the application id of the output in this life of the flow. Takes a listing of
    the folder besides the reads. Raises `OSError` where entries cannot be read.
    """
    versions = sorted(int(found[1]) for name in os.listdir(log) if (found := _ENTRY.fullmatch(name)))
    low, high = 0, bisect_left(versions, newest + 1)
    while low < high:
        middle = (low + high) // 2
        place, span = middle, None
        while place >= low and (span := _span(log / f"{versions[place]:020d}.json", output, life)) is None:
            place -= 1
        if span is None or epoch >= span[1]:
            low = middle + 1
        elif epoch < span[0]:
            high = place
        else:
            return versions[place]
    return None


def _span(entry: Path, output: OutputId, life: str) -> tuple[int, int] | None:
    """Return the epochs `[lower, upper)` that the output committed with an entry, None when that is not its own."""
    span: tuple[int, int] | None = None
    last: int | None = None
    with suppress(FileNotFoundError, ValueError, RecursionError):  # cleaned up meanwhile, or nothing that we wrote
        for line in entry.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            match action:
                case {"commitInfo": {"flow": output.flow, "output": output.output, "lower": int(), "upper": int()}}:
                    span = action["commitInfo"]["lower"], action["commitInfo"]["upper"]
                case {"txn": {"appId": str() as owner, "version": int() as version}} if owner == life:
                    last = version
    return span if span is not None and last == span[1] - 1 and span[0] < span[1] else None
