"""A job taken apart: the reads of each task, and the tasks' part of outputs that are staged where they are read.

Invariant: every split of the job is in exactly one task, which has its splits in the order of their epochs, then
partitions, then positions. Of a source that is read `whole`, one task has all splits of an epoch.

Splits are dealt the longest first, each to the task that has least (LPT). Graham's bound (R. L. Graham, 1969): the
heaviest task has at most 4/3 of the least possible. A small job is one task, because a task's fixed cost is more than
a megabyte's.

>>> deal([8_000_000, 1_000_000, 5_000_000, 6_000_000], tasks=2)
[[0, 1], [3, 2]]
>>> deal([10, 20, 30], tasks=8), dealt((), tasks=4)
([[2, 1, 0]], [[]])
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias

import pyarrow as pa

from tidegauge.job.functions import columns_of
from tidegauge.job.leftout import carried_by
from tidegauge.job.plan import MapBatches, OutputPlan, OutputWork, SourceRead, Step
from tidegauge.job.task import Write
from tidegauge.sources.protocol import Split

__all__ = ["TINY", "Analysed", "deal", "dealt", "stream_schema", "write_of"]

_PLACE: Final = attrgetter("epoch", "partition", "lower")

TINY: Final = 1 << 20
"""Bytes for which a further task is not worth its start."""

_Functions: TypeAlias = tuple[tuple[MapBatches, ...], pa.Schema]


class Analysed:
    """The steps of outputs as Arrow functions, and the columns that they give. In any thread.

    They are analysed once for as long as neither they nor the rows that they are given change.
    """

    def __init__(self, analyse: Callable[[OutputPlan, pa.Schema], _Functions]) -> None:
        self._analyse: Final = analyse
        self._known: Final[dict[str, tuple[tuple[Step, ...], pa.Schema, _Functions]]] = {}

    def of(self, plan: OutputPlan, rows: pa.Schema) -> _Functions:
        """Return those of an output that is given `rows`, or raise the error of a step."""
        known = self._known.get(plan.name)
        if known is not None and known[0] == plan.steps and known[1].equals(rows):
            return known[2]
        found = self._analyse(plan, rows)
        self._known[plan.name] = (plan.steps, rows, found)
        return found


def stream_schema(plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
    """Return the columns with which an output's stream begins."""
    return columns_of(source_schema, plan.channel)


def write_of(work: OutputWork, functions: tuple[MapBatches, ...], rows: pa.Schema) -> Write:
    """Return the task's part of an output that is given `rows`, from which functions make the rows to stage."""
    plan = work.plan
    carried = carried_by(plan, rows)
    return Write(plan.name, plan.source, plan.channel, functions, plan.sink, rows, work.schema, carried)


def dealt(reads: tuple[SourceRead, ...], *, tasks: int) -> list[list[SourceRead]]:
    """Return the reads of each task: the splits of all sources, packed by weight; of one that is `whole`, epochs."""
    pieces = [(read, together) for read in reads for together in _together(read)]
    groups = deal([sum(split.weight for split in together) for _, together in pieces], tasks=tasks)
    return [
        [
            replace(read, splits=mine)
            for read in reads
            if (mine := tuple(sorted(chain(*(pieces[i][1] for i in group if pieces[i][0] is read)), key=_PLACE)))
        ]
        for group in groups
    ]


def _together(read: SourceRead) -> Iterable[Sequence[Split]]:
    """Return the splits of a read that are to be in one task."""
    if not read.whole:
        return [(split,) for split in read.splits]
    epochs: dict[int, list[Split]] = {}
    for split in read.splits:
        epochs.setdefault(split.epoch, []).append(split)
    return epochs.values()


def deal(weights: Sequence[int], *, tasks: int) -> list[list[int]]:
    """Return the indices of `weights` as at least one and at most `tasks` groups; none is empty unless all are."""
    wanted = min(tasks, len(weights), sum(weights) // TINY + 1)
    groups: list[list[int]] = [[] for _ in range(max(1, wanted))]
    loads = [(0, group) for group in range(len(groups))]
    for index in sorted(range(len(weights)), key=lambda i: -weights[i]):
        load, group = heapq.heappop(loads)
        groups[group].append(index)
        heapq.heappush(loads, (load + max(1, weights[index]), group))
    return groups
