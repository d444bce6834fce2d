"""The first frame of a job: the reading hops, over tasks of ours and over records that Spark reads by itself.

Invariant: each split of the job is given to one of its hops in one row, so a frame that is run once reads it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegauge.engine.arrowtypes import spark_schema
from tidegauge.engine.spark.assigned import Assignment, pack
from tidegauge.engine.spark.framed import framed
from tidegauge.engine.spark.hops import FEED, REPORT, reading, receiving
from tidegauge.engine.spark.yielding import paced
from tidegauge.job.plan import EpochJob, SourceRead
from tidegauge.job.task import Feed, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["first_frame"]


def first_frame(
    session: Any,
    job: EpochJob,
    direct: Sequence[Write],
    feeds: Sequence[Feed],
    *,
    work: Assignment,
    tasks: int,
    others: Sequence[SourceRead] = (),
) -> DataFrame:
    """Return what the reading hops give: reports, and rows of the feeds.

    tasks: how many are of ours, as `work` tells them. others: the reads that Spark does by itself.
    """
    schema = pa.schema(
        [
            pa.field(REPORT, pa.string()),
            *(pa.field(f"{FEED}{i}", pa.struct(list(feed.schema))) for i, feed in enumerate(feeds)),
        ]
    )
    columns = spark_schema(schema)
    frames = []
    for read in others:
        if (source := framed(read)) is not None:
            hop = receiving(pack([read]), direct, feeds, job=job.id)
            frames.append(source.frame(session, read.splits).mapInArrow(paced(hop, late=job.late), columns))
    if tasks:
        hop = reading(work, direct, feeds)
        numbers = session.range(0, tasks, 1, tasks)
        frames.append(numbers.mapInArrow(paced(hop, late=job.late), columns))
    base: DataFrame = reduce(lambda one, other: one.union(other), frames)
    return base
