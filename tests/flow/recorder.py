"""A source that behaves as the one it wraps, and shows its test what the flow does with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidegauge.remap.frontier import Frontier

__all__ = ["Recorder"]


@dataclass
class Recorder:
    """A source that behaves as the one it wraps, and shows each acknowledgement to a witness at that instant.

    meet: called before each split is read; what it raises is in the way.
    """

    inner: Any
    witness: Callable[[Frontier], None]
    meet: Callable[[], None] = lambda: None

    @property
    def unit(self) -> str:
        return str(self.inner.unit)

    @property
    def schema(self) -> pa.Schema | None:
        return self.inner.schema

    def describe(self) -> Any:
        return self.inner.describe()

    def probe(self, bound: Any, *, now: datetime) -> Any:
        return self.inner.probe(bound, now=now)

    def plan(self, slices: Any, bound: Any) -> Any:
        return self.inner.plan(slices, bound)

    def read(self, split: Any, on_bad_record: Any) -> Any:
        self.meet()
        return self.inner.read(split, on_bad_record)

    def acknowledge(self, frontier: Frontier) -> None:
        self.witness(frontier)
        self.inner.acknowledge(frontier)
