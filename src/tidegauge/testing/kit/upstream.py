"""An upstream that grows step by step, with the model that the laws compare a source with.

Definition. After each step all that upstream has is bound. So the frontiers after the steps lie between records, and
the rows between two of them are those that the bench added in the steps between. A source is never compared with
itself, and a bench need not know a single position.

Invariant: every answer of the source passes the checks that a flow makes of it, and goes through the store's JSON.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.mint import checked_observation
from tidegauge.sources.abilities import from_time_of
from tidegauge.sources.protocol import BadRecord, OnBadRecord, Source, Split
from tidegauge.testing.kit.rows import Row, same
from tidegauge.testing.kit.source_bench import SourceBench, Timed
from tidegauge.testing.kit.trial import LawBroken, expect

__all__ = [
    "NAME",
    "Grown",
    "at",
    "bind",
    "bind_all",
    "grow",
    "look",
    "none",
    "read",
    "read_as_added",
    "read_epochs",
    "slices",
]

NAME: Final = "it"
LOOKS: Final = 1_000


def look(bench: SourceBench, bound: Bound) -> Observation:
    """Return the answer to a probe, checked as in a flow."""
    now = bench.now if isinstance(bench, Timed) else datetime.now(UTC)
    seen = bench.source.probe(bound, now=now)
    try:
        return checked_observation(NAME, from_time_of(bench.source), bound, seen)
    except TidegaugeError as error:
        raise LawBroken(f"a flow refuses an answer of probe: {brief(error)}") from error


def bind(source: Source, bound: Bound, observed: Observation) -> Bound:
    """Bind an observation, and return the bound state as it comes out of a store."""
    details = json.loads(json.dumps({p: dict(detail) for p, detail in observed.details.items()}))
    return Bound(
        frontier=observed.upper,
        details={**bound.details, **details},
        schema=bound.schema or observed.schema or source.schema,
        identity=bound.identity or observed.identity,
        state=observed.state or bound.state,
    )


def bind_all(bench: SourceBench, bound: Bound | None = None) -> Bound:
    """Bind all that upstream has, epoch by epoch."""
    bound = bound or Bound()
    for _ in range(LOOKS):
        observed = look(bench, bound)
        if observed.upper == bound.frontier and not observed.more:
            return bound
        bound = bind(bench.source, bound, observed)
    raise LawBroken(f"after {LOOKS} looks at an upstream that stood still, probe still said that there was more")


@dataclass(frozen=True)
class Grown:
    """An upstream after some steps: the bound state after each, and the rows that each brought."""

    bounds: Sequence[Bound]
    """The first is that of an empty upstream: one more than steps."""
    steps: Sequence[Sequence[Row]]

    @property
    def bound(self) -> Bound:
        """All that is bound."""
        return self.bounds[-1]

    @property
    def added(self) -> list[Row]:
        """The rows of all steps."""
        return [row for rows in self.steps for row in rows]

    def pieces(self, cuts: Sequence[int]) -> tuple[list[Slice], list[list[Row]]]:
        """Return the slices of the epochs that begin and end after these numbers of steps, and each epoch's rows."""
        pieces: list[Slice] = []
        rows: list[list[Row]] = []
        for epoch, (first, last) in enumerate(pairwise(cuts)):
            pieces += slices(self.bounds[last], self.bounds[first].frontier, epoch)
            rows.append([row for step in self.steps[first:last] for row in step])
        return pieces, rows

    def in_order(self, partition: str) -> list[Row] | None:
        """Return the rows of one partition in their order, None where steps added to several at once."""
        rows: list[Row] = []
        for (before, after), step in zip(pairwise(self.bounds), self.steps, strict=True):
            moved = after.frontier.since(before.frontier)
            if partition in moved:
                if len(moved) > 1:
                    return None
                rows += step
        return rows


def grow(bench: SourceBench, counts: Sequence[int], *, since: Bound | None = None) -> Grown:
    """Let upstream grow by that many records a step, and bind all after each."""
    bounds, steps = [since or bind_all(bench)], []
    for count in counts:
        steps.append(list(bench.add(count)))
        bounds.append(bind_all(bench, bounds[-1]))
        expect(
            bounds[-1].frontier != bounds[-2].frontier,
            f"{_many(count)} added to upstream, and probe still says {dict(bounds[-1].frontier)}",
        )
    return Grown(bounds, steps)


def _many(count: int) -> str:
    return "a record was" if count == 1 else f"{count} records were"


def slices(bound: Bound, since: Frontier = ORIGIN, epoch: int = 0) -> list[Slice]:
    """Return the slices of an epoch, from one frontier to the bound one."""
    return [Slice(NAME, epoch, p, lower, upper) for p, (lower, upper) in bound.frontier.since(since).items()]


def none(record: BadRecord) -> None:
    """Take no bad record."""
    where = f"{record.partition!r} at {record.position}"
    raise LawBroken(f"a good record was handed over as a bad one: in {where}, {record.code}, {record.message}")


def read(source: Source, splits: Sequence[Split], on_bad_record: OnBadRecord = none) -> Iterator[pa.RecordBatch]:
    """Yield the batches of tasks, which have copies of the source and the splits."""
    source, splits = pickle.loads(pickle.dumps((source, splits)))  # noqa: S301 (our own, from the line itself)
    for split in splits:
        yield from source.read(split, on_bad_record)


def read_epochs(
    source: Source, splits: Sequence[Split], on_bad_record: OnBadRecord = none
) -> Mapping[int, list[Row]]:
    """Return the rows of each epoch."""
    rows: defaultdict[int, list[Row]] = defaultdict(list)
    for split in splits:
        for batch in read(source, [split], on_bad_record):
            rows[split.epoch] += batch.to_pylist()
    return rows


def at(seen: Observation) -> str:
    """Return where an observation is, in words."""
    return f"upper={dict(seen.upper)}, end={dict(seen.end)}"


def read_as_added(bench: SourceBench, grown: Grown, cuts: Sequence[int]) -> None:
    """Plan the epochs that these cuts make, and compare the rows of each."""
    pieces, wanted = grown.pieces(cuts)
    splits = bench.source.plan(pieces, grown.bound)
    odd = next((split for split in splits if split.weight < 0 or not 0 <= split.epoch < len(wanted)), None)
    expect(odd is None, f"a split has a negative weight, or an epoch that was not asked for: {odd!r}")
    found = read_epochs(bench.source, splits)
    for epoch, rows in enumerate(wanted):
        ranges = ", ".join(f"{p.partition!r} from {p.lower} to {p.upper}" for p in pieces if p.epoch == epoch)
        same(rows, found.get(epoch, []), f"of {ranges}, one of {len(wanted)} epochs in the plan")
