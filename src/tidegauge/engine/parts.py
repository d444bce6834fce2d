"""A job taken apart: the reads of each task, and the tasks' part of outputs that are staged where they are read.

Invariant: every split of the job is in exactly one task.

>>> dealt((), tasks=4)
[[]]
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tidegauge.engine.packing import deal
from tidegauge.job.plan import MapBatches, OutputPlan, OutputWork, SourceRead
from tidegauge.job.task import Write
from tidegauge.sources.protocol import BAD_RECORDS

__all__ = ["dealt", "stream_schema", "write_of"]


def stream_schema(plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
    """Return the columns with which an output's stream begins."""
    return BAD_RECORDS if plan.channel == "errors" else source_schema


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
            if (mine := tuple(pieces[i][1] for i in group if pieces[i][0] is read))
        ]
        for group in groups
    ]
