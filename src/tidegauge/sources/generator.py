"""Seeded rows at a steady rate: a source for tests, demonstrations and load, `GeneratorSource`.

Let `t(now)` be how many rows there are at `now`: `rows` without a rate, otherwise `1 + floor(rate * (now - start))`,
at most `rows`, and none before `start`. Row `j` of all is row `j // shards` of shard `j % shards`, so the shards'
ends are a function of `t`, and what an epoch takes lies between two values of `t`.

Invariant: the content of a row depends on (seed, shard, row, column) alone, see `generated`. The start is kept with
the first binding, so a flow that is started again goes on at the pace it had.

>>> from datetime import UTC
>>> source = GeneratorSource(10, columns="id long, name string", shards=2)
>>> observed = source.probe(Bound(), now=datetime(2026, 1, 1, tzinfo=UTC))
>>> dict(observed.upper), observed.upper.sealed, observed.more
({'shard-0': 5, 'shard-1': 5}, True, False)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.ddl import parse_ddl
from tidegauge.sources.generated import can_generate, rows
from tidegauge.sources.metadata import stamped, with_metadata, without_metadata
from tidegauge.sources.protocol import OnBadRecord, Split

__all__ = ["GeneratorSource", "GeneratorSplit"]

BATCH_ROWS: Final = 65_536
SPLIT_ROWS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorSplit:
    """The rows `[lower, upper)` of one shard."""

    epoch: int
    partition: str
    lower: int
    upper: int
    weight: int
    shard: int
    schema: pa.Schema


@dataclass(frozen=True)
class GeneratorSource:
    """Rows of random values. Other columns, another seed or another number of shards make it another upstream.

    Args:
        rows: how many in all; None for no end.
        columns: a DDL string of booleans, integers, floats, strings, dates, timestamps, decimals.
        seed: together with the columns and the shards, it determines every row.
        shards: the number of partitions.
        rate: rows per second in total; None for all at once.
        start: when the rate begins; None for the first probe.
        max_records_per_epoch: how many rows one epoch takes at most. 10 million, so that each epoch is small enough
            for one job.
        metadata: add `_partition` and `_offset`. False, to keep rows narrow.

    Raises `InvalidArgument`, `InvalidSchema`, `ReservedColumn`.
    """

    rows: int | None = None
    _: KW_ONLY
    columns: str
    seed: int = 0
    shards: int = 1
    rate: float | None = None
    start: datetime | None = None
    max_records_per_epoch: int = 10_000_000
    metadata: bool = False

    def __post_init__(self) -> None:
        if self.rows is not None:
            _whole("rows", self.rows, least=0)
        _whole("seed", self.seed, least=None)
        _whole("shards", self.shards, least=1)
        _whole("max_records_per_epoch", self.max_records_per_epoch, least=1)
        rate = self.rate
        if rate is not None and (not isinstance(rate, int | float) or not 0 < rate < float("inf")):
            raise InvalidArgument(parameter="rate", value=rate, expected="rows per second, above 0, or None")
        if self.start is not None and self.start.tzinfo is None:
            raise InvalidArgument(parameter="start", value=self.start, expected="a time with its time zone")
        for column in without_metadata(self.schema, metadata=self.metadata):
            if not can_generate(column.type):
                raise InvalidArgument(
                    parameter=f"columns: the type of {column.name}",
                    value=str(column.type),
                    expected="a boolean, integer, float, string, date, timestamp or decimal",
                )

    @property
    def unit(self) -> str:
        """Positions count rows."""
        return "records"

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, metadata columns included."""
        return with_metadata(parse_ddl(self.columns), metadata=self.metadata, where="the generator")

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "kind": "generator",
            "rows": self.rows,
            "columns": self.columns,
            "seed": self.seed,
            "shards": self.shards,
            "rate": self.rate,
            "start": None if self.start is None else self.start.isoformat(),
            "max_records_per_epoch": self.max_records_per_epoch,
            "metadata": self.metadata,
        }

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how many rows there are by now; sealed when every row is bound."""
        kept = bound.details.get(_shard(0))
        start = datetime.fromisoformat(str(kept["start"])) if kept else self.start or now
        done = sum(bound.frontier.values())
        there = self._there(start, now)
        goal = done + self.max_records_per_epoch
        taken = goal if there is None else min(there, goal)
        upper = bound.frontier.join(self._frontier(taken))
        if self.rows is not None and self._frontier(self.rows).less_equal(upper):
            upper = upper.seal()  # with the last row: the end takes no epoch of its own
        return Observation(
            at=now,
            upper=upper,
            end=upper if there is None else upper.join(self._frontier(there)),
            more=not upper.sealed and (there is None or taken < there),
            identity=self._identity,
            details={} if kept or taken == 0 else {_shard(0): {"start": start.isoformat()}},
            schema=self.schema if bound.schema is None else None,
            note="" if taken or upper.sealed else f"waiting: the first row comes at {start.isoformat()}",
        )

    def _there(self, start: datetime, now: datetime) -> int | None:
        """Return how many rows there are at `now`, None when there is no end to them. Exact: no float is added up."""
        if self.rate is None:
            return self.rows
        if now < start:
            return 0
        elapsed = Fraction((now - start) // timedelta(microseconds=1), 1_000_000)
        there = 1 + int(elapsed * Fraction(self.rate))
        return there if self.rows is None else min(there, self.rows)

    def _frontier(self, total: int) -> Frontier:
        return Frontier({_shard(s): -(-(total - s) // self.shards) for s in range(min(self.shards, total))})

    @cached_property
    def _identity(self) -> str:
        facts = f"{self.seed}\n{self.shards}\n{self.schema}"
        return hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()

    def size(self, piece: Slice, bound: Bound) -> int:  # noqa: ARG002 - the seam's shape
        """Return the number of rows."""
        return piece.size

    def cut(self, piece: Slice, size: int, bound: Bound) -> int:  # noqa: ARG002 - the seam's shape
        """Return where `size` rows end: a shard can be cut anywhere."""
        return piece.lower + size

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices into splits of at most a million rows."""
        if slices and bound.identity not in ("", self._identity):
            raise UpstreamRecreated(source=slices[0].source, known=bound.identity, found=self._identity)
        schema = bound.schema or self.schema
        width = sum(_width(column.type) for column in schema)
        return [
            GeneratorSplit(
                epoch=piece.epoch,
                partition=piece.partition,
                lower=lower,
                upper=upper,
                weight=(upper - lower) * width,
                shard=int(piece.partition.removeprefix("shard-")),
                schema=schema,
            )
            for piece in slices
            for lower, upper in pairwise([*range(piece.lower, piece.upper, SPLIT_ROWS), piece.upper])
        ]

    def read(self, split: GeneratorSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the rows of a split; every one can be decoded."""
        columns = without_metadata(split.schema, metadata=self.metadata)
        for lower, upper in pairwise([*range(split.lower, split.upper, BATCH_ROWS), split.upper]):
            yield stamped(
                rows(columns, seed=self.seed, shard=split.shard, lower=lower, upper=upper),
                pa.array(np.arange(lower, upper, dtype=np.int64)) if self.metadata else None,
                partition=split.partition,
                schema=split.schema,
                metadata=self.metadata,
            )

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: every row can be made again."""


def _shard(number: int) -> str:
    return f"shard-{number}"


def _width(of: Any) -> int:
    """Return about how many bytes a value takes."""
    return 16 if pa.types.is_string(of) else max(1, of.bit_width // 8)


def _whole(parameter: str, value: object, *, least: int | None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        bound = "" if least is None else f", at least {least}"
        raise InvalidArgument(parameter=parameter, value=value, expected=f"a whole number{bound}")
