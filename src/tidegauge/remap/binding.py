"""The values of the timeline: a source's answers, the content of an epoch, and the ranges that follow.

Invariant: these are plain frozen values; what they hold can be written to the store as JSON and integers.

>>> Slice("orders", epoch=3, partition="p0", lower=5, upper=9).size
4
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import pyarrow as pa

from tidegauge.remap.findings import Findings
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.frontier import ORIGIN, Frontier

__all__ = ["NO_DETAILS", "Bound", "Detail", "EarlierColumns", "Observation", "Proposal", "Slice"]

Detail: TypeAlias = Mapping[str, str | int]
"""Facts that a source keeps about one partition, such as the path and the fingerprint of a file."""

NO_DETAILS: Mapping[str, Detail] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What a probe observed: what upstream says of itself at one instant.

    at: when the probe *started*. lower: the first position of each partition that can still be read. upper: the
    frontier that may be bound now, at record boundaries. end: all that upstream holds, bound or not (for lag). more:
    whether upstream has more than `upper` that needs no new data to become admissible (an epoch was full, a file is
    settling). identity: changes when the upstream was recreated. details: facts of partitions that are new or have
    changed since the last binding. schema: the schema inferred from upstream, when the source was asked to infer one.
    note: one line for people about what the source is waiting for, or "". state: what a polled source has to know at
    its next poll, kept with the binding; None leaves the one that is bound. taken_back: positions `(lower, upper)` by
    partition that upstream had shown and has taken back before they were bound, and that are given up by choice.
    coming: whether records before `end` have yet to come by themselves, as those of a pushed source do; where `upper`
    is `end` too, nobody knows yet how far upstream is.
    """

    at: datetime
    upper: Frontier
    end: Frontier
    lower: Frontier = ORIGIN
    more: bool = False
    identity: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict)
    schema: pa.Schema | None = None
    note: str = ""
    state: SourceState | None = None
    taken_back: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    coming: bool = False


@dataclass(frozen=True, slots=True)
class EarlierColumns:
    """The columns that a source had until others took their place: those of its records before some positions.

    epoch: the first that was not bound then. positions: of each partition of `incarnation` that had any bound.
    """

    epoch: int
    schema: pa.Schema
    incarnation: int
    positions: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The durable knowledge about a source: its frontier, the facts of its partitions, its schema once known.

    identity: upstream's identity when the source was first bound, "" if it has none. state: the newest bound one. All
    of it belongs to the present incarnation, whose number is `incarnation`. last: the last answer to the same driver,
    bound or not; it is not durable, and None at a driver's first probe. `plan` gets it while it is good enough for
    that (`perform`), otherwise None. earlier: the columns that it had before `schema`, in the order of time.
    findings: what the sources share that are asked together with this one and look where it looks (`Overlapping`),
    None where it is asked alone.
    """

    frontier: Frontier = ORIGIN
    details: Mapping[str, Detail] = field(default_factory=dict)
    schema: pa.Schema | None = None
    identity: str = ""
    state: SourceState | None = None
    incarnation: int = 0
    last: Observation | None = None
    earlier: tuple[EarlierColumns, ...] = ()
    findings: Findings | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """One source's part of a binding: its new frontier, the facts and the state to keep with it, and upstream's
    identity."""

    frontier: Frontier
    details: Mapping[str, Detail] = field(default_factory=dict)
    identity: str = ""
    state: SourceState | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """The positions `[lower, upper)` of one partition, which belong to one epoch: a piece of the work list."""

    source: str
    epoch: int
    partition: str
    lower: int
    upper: int

    @property
    def size(self) -> int:
        """How many positions the slice spans, in the source's own unit."""
        return self.upper - self.lower
