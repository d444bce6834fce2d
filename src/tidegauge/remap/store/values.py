"""What goes into the store and what comes out of it, as frozen values.

Invariant: a value read from the store is a copy; changing the store does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Detail
from tidegauge.remap.table import RemapTable

__all__ = ["EpochRecord", "FlowRecord", "Loaded", "LoadedOutput", "LoadedSource", "OutputSpec", "SourceSpec"]


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A flow: epochs below `upper` are bound, below `published` published, below `since` indistinguishable."""

    id: int
    name: str
    incarnation: str
    upper: int
    published: int
    since: int


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source as its flow describes it: its configuration as JSON without secrets, its columns if declared."""

    config: Mapping[str, Any]
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """An output as its flow describes it: the source that it reads, its configuration as JSON without secrets."""

    source: str
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSource:
    """A source as the store knows it.

    `identity` is upstream's when it was first bound, "" where it has none. `failure` is the epoch from which it has
    failed for good, and why.
    """

    table: RemapTable
    details: Mapping[str, Detail]
    schema: pa.Schema | None
    failure: tuple[int, TidegaugeError] | None
    config: Mapping[str, Any]
    identity: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedOutput:
    """An output as the store knows it; how far it is, its own table knows.

    `failure` is the epoch at which it failed for a reason of its own, and why. See `outstanding`.
    """

    source: str
    config: Mapping[str, Any]
    failure: tuple[int, TidegaugeError] | None

    def outstanding(self, table_upper: int) -> tuple[int, TidegaugeError] | None:
        """Return the failure, unless the table has got past it: what is in the table is what counts.

        The failure is taken back in the store right after the commit that gets past it; a driver may die between.
        """
        return None if self.failure is None or table_upper > self.failure[0] else self.failure


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that the store holds of a flow, as of one instant."""

    flow: FlowRecord
    sources: Mapping[str, LoadedSource]
    outputs: Mapping[str, LoadedOutput]


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch of the timeline. `published_at` is None while an output does not hold it."""

    epoch: int
    minted_at: datetime
    published_at: datetime | None
