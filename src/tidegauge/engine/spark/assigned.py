"""What the tasks of a job read, and how they learn of it: from the closure of their hop, or from the job itself.

What differs from one job of a flow to the next is the name of the attempt and the splits. `Assigned` has both, so a
plan whose hops have it in their closure is good for one job. A hop with `ByProperty` in its closure finds them in a
property of the Spark job that runs it (`SparkContext.setLocalProperty`), which comes with each task. So its plan is
good for any number of jobs (`standing.py`). A property holds splits alone, because Spark's event log
has it.

Invariant: a task reads the splits of the job that started it, or raises.

>>> work = assigned("job7", [], [[], []])
>>> text = work.text(plan="plan1")
>>> found = heard(text, plan="plan1", sources=work.sources)
>>> found == work, found.reads(1)
(True, [])
>>> heard(text, plan="plan2", sources=work.sources)
Traceback (most recent call last):
RuntimeError: this task is of another plan than its job: plan2, not plan1
"""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from tidegauge.job.plan import SourceRead

__all__ = ["PROPERTY", "Assigned", "Assignment", "ByProperty", "assigned", "heard", "pack", "unpack"]

PROPERTY: Final = "tidegauge.splits"


def pack(value: object) -> bytes:
    """Return a value for a closure that all tasks get: each unpacks its own only."""
    from pyspark import cloudpickle

    dumps: Callable[[object], bytes] = cloudpickle.dumps
    return zlib.compress(dumps(value), level=1)


def unpack(packed: bytes) -> Any:
    """Return a value that this flow's driver has packed."""
    return pickle.loads(zlib.decompress(packed))  # noqa: S301 - the driver's own


class Assignment(Protocol):
    """Gives a hop, while it runs, the splits of its job."""

    def now(self) -> Assigned:
        """Return it."""
        ...

    def unread(self) -> Assignment:
        """Return what a hop needs that reads no splits, but is of the same attempt."""
        ...


@dataclass(frozen=True, slots=True)
class Assigned:
    """The splits of one attempt at a job, by task.

    sources: the reads of the job without their splits, packed. tasks: the splits of these reads for each task,
    packed.
    """

    job: str
    sources: bytes
    tasks: tuple[bytes, ...]

    def now(self) -> Assigned:
        """Return itself."""
        return self

    def unread(self) -> Assigned:
        """Return the name of the attempt alone."""
        return Assigned(self.job, b"", ())

    def reads(self, number: int) -> list[SourceRead]:
        """Return what one task reads."""
        known = unpack(self.sources)
        return [replace(known[name], splits=splits) for name, splits in unpack(self.tasks[number])]

    def text(self, *, plan: str) -> str:
        """Return what tells it to the tasks of a plan; the sources are in the plan."""
        return base64.b64encode(pack((plan, self.job, self.tasks))).decode()


@dataclass(frozen=True, slots=True)
class ByProperty:
    """Finds the splits in the property of a job. plan, sources: of the plan that it is in."""

    plan: str
    sources: bytes

    def now(self) -> Assigned:
        """Return it, in a task of Spark's."""
        from pyspark import TaskContext

        context = TaskContext.get()
        text = None if context is None else context.getLocalProperty(PROPERTY)
        if text is None:
            raise RuntimeError(f"the job of this task has no property {PROPERTY}")
        return heard(text, plan=self.plan, sources=self.sources)

    def unread(self) -> ByProperty:
        """Return what finds the attempt, without the sources."""
        return ByProperty(self.plan, b"")


def heard(text: str, *, plan: str, sources: bytes) -> Assigned:
    """Return what a text tells the tasks of a plan. Raises `RuntimeError` if it is for another one."""
    meant, job, tasks = unpack(base64.b64decode(text))
    if meant != plan:
        raise RuntimeError(f"this task is of another plan than its job: {plan}, not {meant}")
    return Assigned(job, sources, tasks)


def assigned(job: str, reads: Sequence[SourceRead], parts: Sequence[Sequence[SourceRead]]) -> Assigned:
    """Return the splits of reads that are dealt to tasks: to each of them one part."""
    sources = pack({read.name: replace(read, splits=()) for read in reads})
    return Assigned(job, sources, tuple(pack([(read.name, read.splits) for read in part]) for part in parts))
