"""Sources that Spark reads by itself (`Framed`), as far as a job is concerned with them.

Invariant: a source that cannot be read takes no other source's outputs along.
"""

from __future__ import annotations

from dataclasses import replace

from tidegauge.errors.base import Transient
from tidegauge.job.plan import EpochJob, SourceRead
from tidegauge.remap.round import Failure
from tidegauge.sources.abilities import Framed

__all__ = ["framed", "missing", "without"]


def framed(read: SourceRead) -> Framed | None:
    """Return the source of a read if Spark reads it by itself: not where one task has to read all of an epoch."""
    source = read.source
    return source if isinstance(source, Framed) and source.framed and read.splits and not read.whole else None


def missing(job: EpochJob) -> list[Failure]:
    """Return why sources that Spark reads by itself cannot be read: upstream lacks bound records, or is away."""
    failures = []
    for read in job.reads:
        if (source := framed(read)) is not None:
            try:
                gone = source.missing(read.splits)
            except Transient as error:
                gone = min(split.epoch for split in read.splits), error
            if gone is not None:
                failures.append(Failure(read.name, None, *gone))
    return failures


def without(job: EpochJob, sources: set[str]) -> EpochJob:
    """Return a job without what it reads of sources, and their outputs."""
    reads = tuple(read for read in job.reads if read.name not in sources)
    return replace(job, reads=reads, outputs=tuple(w for w in job.outputs if w.plan.source not in sources))
