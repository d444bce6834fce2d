"""The output that cannot take a row, and its epoch: a job that failed is run again in parts.

Spark says that a row cannot be computed, but names neither the output nor the epoch. So each output that goes
through Spark runs alone, and one that fails again runs with fewer epochs, by bisection, until the first that fails is
known. What the tries staged is in their reports too, to be discarded.

Invariant: an output gets a failure only of its own rows, and at the first epoch that has such a row.

>>> first_failing([3, 5, 8], lambda epoch: epoch >= 5)
5
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import ExpressionFailed
from tidegauge.job.plan import EpochJob, OutputWork
from tidegauge.job.report import Report
from tidegauge.remap.round import Failure

__all__ = ["RowFailure", "Running", "apart", "first_failing"]

RowFailure: TypeAlias = Callable[[EpochJob, Exception], TidegaugeError | str | None]
"""Returns the error in a row if that is why a job failed, or None if the engine failed."""

Running: TypeAlias = Callable[[EpochJob], list[Report]]
"""Runs a job and returns what its tasks report."""


def apart(job: EpochJob, through: Sequence[OutputWork], run: Running, of_row: RowFailure) -> list[Report]:
    """Run a job again, each output that goes through Spark alone, to learn which of them fail and where.

    through: these outputs. Raises what `run` raises, but for errors in rows.
    """
    direct = tuple(work for work in job.outputs if work not in through)
    groups = [direct] if direct else []
    groups += [(work,) for work in through]
    reports: list[Report] = []
    for group in groups:
        sources = {work.plan.source for work in group}
        part = replace(job, reads=tuple(r for r in job.reads if r.name in sources), outputs=group)
        try:
            reports += run(part)
        except Exception as error:
            if of_row(part, error) is None:
                raise
            reports += _narrowed(part, group[0], error, run, of_row)
    return reports


def _narrowed(job: EpochJob, work: OutputWork, error: Exception, run: Running, of_row: RowFailure) -> list[Report]:
    """Return the failure of a job's one output, and what the tries report."""
    reports: list[Report] = []
    found = [error]

    def fails(epoch: int) -> bool:
        reads = tuple(replace(r, splits=tuple(s for s in r.splits if s.epoch <= epoch)) for r in job.reads)
        try:
            reports.extend(run(replace(job, reads=reads)))
        except Exception as error:
            if of_row(job, error) is None:
                raise
            found[0] = error
            return True
        return False

    epoch = first_failing(sorted({split.epoch for read in job.reads for split in read.splits}), fails)
    wrong = of_row(job, found[0])
    if not isinstance(wrong, TidegaugeError):
        wrong = ExpressionFailed(output=work.plan.name, epoch=epoch, detail=str(wrong))
        wrong.__cause__ = found[0]
    return [*reports, Report(failures=[Failure(work.plan.source, work.plan.name, epoch, wrong)])]


def first_failing(epochs: Sequence[int], fails: Callable[[int], bool]) -> int:
    """Return the first of ascending epochs up to which it fails; up to the last one it does, which is not tried."""
    return epochs[bisect.bisect_left(epochs[:-1], True, key=fails)]  # noqa: FBT003 - False before, True after
