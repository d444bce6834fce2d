"""The user's function that is an output: what it is given.

Invariant: no two calls have the same `EpochAttempt`, and those for one epoch differ in its `id` alone.

>>> EpochAttempt("shop", "users", "0" * 32, 7, "1" * 32).epoch
7
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

__all__ = ["EpochAttempt", "EpochFunction"]


@dataclass(frozen=True, slots=True)
class EpochAttempt:
    """A call of the function: its output, its epoch, and what tells it from other calls for that epoch.

    incarnation: the life of the flow's store: with another store, epochs have other rows. id: 32 hex digits that no
    other call has.
    """

    flow: str
    output: str
    incarnation: str
    epoch: int
    id: str


EpochFunction: TypeAlias = Callable[[pa.RecordBatchReader, EpochAttempt], object]
"""Is given the rows of an epoch, `_epoch` included. What it returns is ignored; what it raises fails the output."""
