"""The first row of each key in an epoch (`Dedupe`), by partition and then by position.

One task reads all of an epoch, in that order (`SourceRead.whole`), and the steps before keep it. So the first row
depends neither on how rows are cut into batches, nor on splits, tasks or attempts: each task, and each attempt at it,
begins anew (`begun`). A task that has gone on to another epoch never comes back to one.

Invariant: a task keeps the keys of one epoch, and no row.

>>> first = FirstOfKey(("id",))
>>> first(pa.record_batch({"id": [1, 1, 2], "n": [5, 6, 7]})).column("n").to_pylist()
[5, 7]
>>> task = first.begun()
>>> batches = [([1, 2], 4), ([2, 3], 4), ([2], 5)]
>>> [task.within(pa.record_batch({"id": ids}), epoch)["id"].to_pylist() for ids, epoch in batches]
[[1, 2], [3], [2]]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegauge.job.keys import values_of

__all__ = ["FirstOfKey", "FirstSoFar"]


@dataclass(frozen=True, slots=True)
class FirstOfKey:
    """The step as an Arrow function, for an epoch that is one batch."""

    key: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the first row of each key in the batch."""
        return self.begun().within(batch, 0)

    def begun(self) -> FirstSoFar:
        """Return what a task has of it."""
        return FirstSoFar(self.key)


@dataclass(slots=True)
class FirstSoFar:
    """What a task has seen of the epoch that it is in."""

    key: tuple[str, ...]
    _epoch: int | None = field(default=None, init=False)
    _seen: set[Any] = field(default_factory=set, init=False)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch of the same epoch as the last one whose keys are new."""
        return self.within(batch, self._epoch or 0)

    def within(self, batch: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
        """Return the rows of the next batch of an epoch whose keys are new in it."""
        if epoch != self._epoch:
            self._epoch, self._seen = epoch, set()
        seen, keys = self._seen, values_of(batch, self.key)
        again = seen.intersection(keys)
        before = len(seen)
        seen.update(keys)
        if len(seen) - before == len(keys):  # the usual case, without a step of Python's for each row
            return batch
        new = []
        for key in keys:
            new.append(key not in again)
            again.add(key)
        return batch.filter(pa.array(new, pa.bool_()))
