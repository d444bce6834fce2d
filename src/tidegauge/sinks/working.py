"""Work that a commit has to be done first, by an engine's tasks: a table by key merges its changes so.

Invariant: a task of it is a picklable value that stages files and returns them; it changes nothing that anybody sees,
so it may be done twice, or in vain. What comes back from another process is JSON, never a pickle.

>>> from functools import partial
>>> alone([partial(list, [StagedFile("part-0.parquet", 1, 9, 0, 0)])])[0][0].rows
1
>>> settled(outcome(partial(list, [])))
[]
>>> def full():
...     raise OSError(28, "No space left on device")
>>> settled(outcome(full))
Traceback (most recent call last):
    ...
OSError: [Errno 28] No space left on device
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from tidegauge.errors.base import TidegaugeError
from tidegauge.sinks.protocol import StagedFile

__all__ = ["Work", "Workers", "Working", "alone", "gathered", "outcome", "settled"]

Work: TypeAlias = Callable[[], list[StagedFile]]
"""A task: stages files durably, and returns them."""

Workers: TypeAlias = Callable[[Sequence[Work]], list[list[StagedFile]]]
"""Does tasks, beside each other where it can, and returns what each of them staged.

Raises the first error of ours, or `OSError`, that a task raised; `MergeFailed` where the engine is in trouble.
"""


@runtime_checkable
class Working(Protocol):
    """A `Table` whose commits have work to be done. Until it is told otherwise, it does that by itself."""

    def work_by(self, workers: Workers) -> None:
        """Have the work of commits done by these from now on."""
        ...


def alone(tasks: Sequence[Work]) -> list[list[StagedFile]]:
    """Do the tasks one after the other."""
    return [task() for task in tasks]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Several tasks as one: they are done one after the other."""

    tasks: tuple[Work, ...]

    def __call__(self) -> list[StagedFile]:
        return [file for task in self.tasks for file in task()]


def gathered(tasks: Iterable[tuple[int, Work]], *, most: int) -> Iterator[Work]:
    """Yield tasks; small ones that follow each other become one. Each is given with how much it reads.

    >>> [len(done()) for done in gathered([(1, list), (2, lambda: ["part-0"]), (9, list)], most=3)]
    [1, 0]
    """
    waiting, size = list[Work](), 0
    for weight, task in tasks:
        if waiting and size + weight > most:
            yield _Gathered(tuple(waiting))
            waiting, size = [], 0
        waiting.append(task)
        size += weight
    if waiting:
        yield _Gathered(tuple(waiting))


def outcome(task: Work) -> str:
    """Do a task, and return what came of it as JSON text. Other exceptions than ours and `OSError` go through."""
    try:
        return json.dumps({"files": [file.encode() for file in task()]})
    except TidegaugeError as error:
        return json.dumps({"error": error.encode()})
    except OSError as error:
        return json.dumps({"errno": error.errno, "said": error.strerror or str(error), "path": error.filename})


def settled(text: str) -> list[StagedFile]:
    """Return what a task staged, or raise what it raised, by its `outcome`."""
    said = json.loads(text)
    if "error" in said:
        raise TidegaugeError.decode(said["error"])
    if "files" not in said:
        raise OSError(said["errno"], said["said"], *([said["path"]] if said["path"] else []))
    return [StagedFile.decode(file) for file in said["files"]]
