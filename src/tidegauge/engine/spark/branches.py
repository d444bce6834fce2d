"""Outputs whose steps run on Spark: how the rows of a feed become what each of them writes.

Outputs whose steps are row-wise share one projection; each other one has a branch of its own over rows that Spark
keeps.

Invariant: a branch writes what its output's steps give for the rows of its feed, whichever other outputs the job has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegauge.engine.plain import Prefilter
from tidegauge.engine.spark.assigned import Assignment
from tidegauge.engine.spark.guarded import guarded
from tidegauge.engine.spark.hops import OUT, REPORT, writing
from tidegauge.engine.spark.sql import Prepared, applied
from tidegauge.engine.spark.yielding import paced
from tidegauge.engine.spelling import packed
from tidegauge.job.report import Report
from tidegauge.job.task import Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Branch", "ended_by", "in_one_pass", "own_branch", "prefilter", "reported"]


@dataclass(frozen=True, slots=True)
class Branch:
    """An output with DataFrame steps in one job: how its steps run, which feed it takes, which rows are written."""

    prepared: Prepared
    feed: str
    write: Write


def prefilter(branches: list[Branch], feed: str) -> Prefilter | None:
    """Return what drops the rows that no output of a feed can keep, or None where one may keep any row."""
    kept = [branch.prepared.kept for branch in branches if branch.feed == feed]
    known = tuple(one for one in kept if one is not None)
    return Prefilter(known) if len(known) == len(kept) else None


def reported(frame: DataFrame) -> list[Report]:
    """Run a frame of reports and return them."""
    return [Report.decode(text) for text in frame.toArrow().column(0).to_pylist()]


def in_one_pass(base: DataFrame, branches: Sequence[Branch], work: Assignment, *, late: bool) -> DataFrame:
    """Return the reports of row-wise outputs: one projection for all of them, then the writing hop.

    Rows that no output keeps stay in the JVM.
    """
    outs = {f"{OUT}{index}": branch for index, branch in enumerate(branches)}
    frame = guarded(base, {out: (branch.feed, branch.prepared.rowwise or ()) for out, branch in outs.items()})
    writes = [(out, branch.write) for out, branch in outs.items()]
    hop = paced(writing(writes, work.unread()), late=late)
    wanted = " OR ".join(f"{column} IS NOT NULL" for column in [REPORT, *outs])
    reports: DataFrame = frame.select(REPORT, *outs).where(wanted).mapInArrow(hop, f"{REPORT} string")
    return reports


def own_branch(base: DataFrame, branch: Branch, work: Assignment, *, late: bool) -> DataFrame:
    """Return the reports of an output whose steps need DataFrames of their own."""
    frame = base.where(f"{branch.feed} IS NOT NULL").selectExpr(f"{branch.feed}.*")
    for step in branch.prepared.steps:
        frame = applied(frame, step, branch.write.name)
    hop = paced(writing([(OUT, branch.write)], work.unread()), late=late)
    silent = f"CAST(NULL AS STRING) AS {REPORT}"
    return frame.selectExpr(silent, packed(frame.columns, OUT)).mapInArrow(hop, f"{REPORT} string")


def ended_by(report: Report, branches: list[Branch]) -> set[str]:
    """Return the outputs that cannot be complete, because their source or their function failed."""
    names = {failure.output for failure in report.failures if failure.output is not None}
    return names | {branch.write.name for branch in branches if report.failed(branch.write.source)}
