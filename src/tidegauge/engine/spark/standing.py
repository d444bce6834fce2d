"""Plans that stand: jobs of a flow that differ in their splits alone begin with one plan of Spark's, analysed once.

Spark takes longer to build a plan through Py4J, to analyse and to optimise it than to run one task of it, and a small
epoch is one task. An analysed plan can be run any number of times. What differs from job to job is told to the tasks
in a property of the job (`assigned.py`), which only a classic session has (`Jobs.pinned`).

A standing plan is all of a job if its SQL gives the same whenever it is planned (`lasting.py`). Otherwise it is the
reading hop (`passing.py`), and SQL is put on top of it for each job anew: Spark fixes the instant of
`current_timestamp()` and the seed of `uuid()` when it plans, so these would be the same in all jobs. A plan is known
by a digest of the bytes that go to the tasks with it, and of the SQL. So if anything is changed, be it within an
object of the user's, the next job has a new plan.

Invariant: two jobs at once never run the same plan, and a plan whose job has failed is not run again.

>>> plans = Plans(most=2)
>>> for name in ("a", "b", "c"):
...     plans.put(name, f"frame of {name}")
>>> plans.take("a"), plans.take("c"), plans.take("c")
(None, 'frame of c', None)
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from tidegauge.engine.spark.assigned import PROPERTY, Assigned, Assignment, ByProperty, pack
from tidegauge.engine.spark.branches import Branch, reported
from tidegauge.job.report import Report
from tidegauge.job.task import Feed, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LONGEST", "Plans", "digest", "run"]

LONGEST: Final = 1 << 16
"""Characters that a job may tell its tasks. More splits than fit are of an epoch that takes seconds anyway."""


class Plans:
    """Plans that nobody runs at present: the last ones that were run, `most` at most. In any thread."""

    def __init__(self, *, most: int = 8) -> None:
        self._most: Final = most
        self._lock: Final = threading.Lock()
        self._frames: Final[OrderedDict[str, Any]] = OrderedDict()

    def take(self, plan: str) -> Any:
        """Take a plan out, None if it is not there."""
        with self._lock:
            return self._frames.pop(plan, None)

    def put(self, plan: str, frame: Any) -> None:
        """Put a plan in, and the one out that has been there the longest."""
        with self._lock:
            self._frames[plan] = frame
            while len(self._frames) > self._most:
                self._frames.popitem(last=False)


def digest(
    work: Assigned, direct: Sequence[Write], feeds: Sequence[Feed], branches: Sequence[Branch], *, late: bool
) -> str:
    """Return what tells a plan from all others: everything that goes into it but the splits.

    branches: those that are in the plan.
    """
    sql = [(branch.prepared.rowwise, branch.feed, branch.write) for branch in branches]
    mine = pack((list(direct), list(feeds), sql, len(work.tasks), late))
    return hashlib.sha256(hashlib.sha256(work.sources).digest() + mine).hexdigest()


def run(
    session: Any,
    plans: Plans,
    plan: str,
    work: Assigned,
    read: Callable[[Assignment], DataFrame],
    rest: Callable[[DataFrame, Assignment], DataFrame],
    *,
    whole: bool,
) -> list[Report] | None:
    """Run a job that begins with the plan of this digest and return its reports; None if it has too many splits.

    read: makes the reading hop, whose tasks find their splits so. rest: puts the rest of the job on top of it. whole:
    whether all of that is the plan that stands.
    """
    text = work.text(plan=plan)
    if len(text) > LONGEST:
        return None
    frame = plans.take(plan)
    if frame is None:
        found = ByProperty(plan, work.sources)
        frame = rest(read(found), found) if whole else read(found)
    with _telling(session, text):
        reports = reported(frame if whole else rest(frame, work))
    plans.put(plan, frame)
    return reports


@contextmanager
def _telling(session: Any, text: str) -> Iterator[None]:
    """Tell the tasks of the jobs that this thread starts in the block."""
    context = session.sparkContext
    context.setLocalProperty(PROPERTY, text)
    try:
        yield
    finally:
        with suppress(Exception):  # the session may have been stopped meanwhile
            context.setLocalProperty(PROPERTY, None)
