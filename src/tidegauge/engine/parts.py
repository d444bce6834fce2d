"""A job taken apart: the reads of each task, and the tasks' part of outputs that are staged where they are read.

Invariant: every split of the job is in exactly one task, which has its splits in the order of their epochs.

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
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

import pyarrow as pa

from tidegauge.job.functions import columns_of
from tidegauge.job.plan import MapBatches, OutputPlan, OutputWork, SourceRead
from tidegauge.job.task import Write

__all__ = ["TINY", "deal", "dealt", "stream_schema", "write_of"]

_PLACE: Final = attrgetter("epoch", "partition", "lower")

TINY: Final = 1 << 20
"""Bytes for which a further task is not worth its start."""


def stream_schema(plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
    """Return the columns with which an output's stream begins."""
    return columns_of(source_schema, plan.channel)


def write_of(work: OutputWork, functions: tuple[MapBatches, ...], rows: pa.Schema) -> Write:
    """Return the task's part of an output that is given `rows`, from which functions make the rows to stage."""
    plan = work.plan
    return Write(plan.name, plan.source, plan.channel, functions, plan.sink, rows, work.schema)


def dealt(reads: tuple[SourceRead, ...], *, tasks: int) -> list[list[SourceRead]]:
    """Return the reads of each task: the splits of all sources, packed by weight."""
    pieces = [(read, split) for read in reads for split in read.splits]
    groups = deal([split.weight for _, split in pieces], tasks=tasks)
    return [
        [
            replace(read, splits=mine)
            for read in reads
            if (mine := tuple(sorted((pieces[i][1] for i in group if pieces[i][0] is read), key=_PLACE)))
        ]
        for group in groups
    ]


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
