"""A union: a source whose records are those of several others of its flow, under the same epochs.

    web  ──┬─► bindings of web ─────────► outputs of web
           └─► bindings of the union ─┐
    shop ──┬─► bindings of the union ─┴─► outputs of the union
           └─► bindings of shop ────────► outputs of shop

It is a derived source (`remap.derived`): the epoch that binds a range of `web` binds the same range of the union. So
an output of the union has, at every epoch, the rows that outputs of `web` and `shop` have together. Each range is
planned, read, cut, confirmed and given up by the input that it is of, which does not know of the union.

Invariants. A record of an input comes in exactly one partition of the union, at the position that it has there.
Nothing is kept in memory: what the union knows of its inputs is in its own bindings.

>>> from datetime import UTC
>>> from tidegauge.sources.generator import GeneratorSource
>>> web, shop = GeneratorSource(columns="id long", rows=3), GeneratorSource(columns="id long", rows=2)
>>> union = UnionSource((UnionInput("web", web), UnionInput("shop", shop)))
>>> found = union.probe(Bound(), now=datetime(2026, 11, 27, tzinfo=UTC))
>>> slices = [Slice("all", 0, place, 0, end) for place, end in sorted(found.upper.items())]
>>> splits = union.plan(slices, Bound(frontier=found.upper, details=found.details))
>>> [(split.partition, row) for split in splits for batch in union.read(split, print) for row in batch["_source"]][-1]
('web/shard-0', <pyarrow.StringScalar: 'web'>)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa

from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.unions import CannotUnite, InputMissing, InputRecreated
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.abilities import Confirming, Cuttable, Divided, GoingOn, Joining
from tidegauge.sources.protocol import BadRecord, OnBadRecord, Source, Split
from tidegauge.sources.union.columns import aligned, united
from tidegauge.sources.union.deriving import bound_of, derived
from tidegauge.sources.union.places import UNION, InputLife, newest, split_of

__all__ = ["UnionInput", "UnionSource", "UnionSplit"]


@dataclass(frozen=True, slots=True)
class UnionInput:
    """A source of a union, by its name in the flow."""

    name: str
    source: Source


@dataclass(frozen=True, slots=True)
class UnionSplit:
    """A split of an input."""

    life: InputLife
    split: Any

    @property
    def epoch(self) -> int:
        """The epoch of its records."""
        return int(self.split.epoch)

    @property
    def partition(self) -> str:
        """The partition of the union."""
        return self.life.partition(self.split.partition)

    @property
    def lower(self) -> int:
        """The position that it begins with."""
        return int(self.split.lower)

    @property
    def upper(self) -> int:
        """The position that it ends before."""
        return int(self.split.upper)

    @property
    def weight(self) -> int:
        """What it costs, about, in bytes."""
        return int(self.split.weight)

    @property
    def parts(self) -> Sequence[UnionSplit] | None:
        """The splits that its input has joined to this one; None for a single one."""
        found = getattr(self.split, "parts", None)
        return None if found is None else [UnionSplit(self.life, part) for part in found]


@dataclass(frozen=True)
class UnionSource:
    """The records of several sources of a flow. Made by `tg.union`."""

    inputs: tuple[UnionInput, ...]

    @property
    def made_of(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(one.name for one in self.inputs)

    @property
    def unit(self) -> str:
        """What positions count, where they count one thing."""
        units = {one.source.unit for one in self.inputs}
        return units.pop() if len(units) == 1 else "positions"

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns; see `columns`. Raises `CannotUnite`."""
        known: dict[str, pa.Schema] = {}
        for one in self.inputs:
            if (columns := one.source.schema) is None:
                raise CannotUnite(
                    why=f"source {one.name!r} infers its columns, so those of the union are not known",
                    remedy="declare its columns, such as format=tg.Json('id long, amount double')",
                )
            known[one.name] = columns
        return united(known)

    def describe(self) -> Mapping[str, Any]:
        """Return what it is made of."""
        return {"kind": UNION, "of": list(self.made_of)}

    def part_of(self, name: str, frontier: Frontier, *, incarnation: int) -> Frontier:
        """Return what a frontier of the union says of an incarnation of an input; see `Derived`."""
        return Frontier(dict(InputLife(name, incarnation).mine(frontier)), sealed=frontier.sealed)

    def derive(self, mine: Bound, inputs: Mapping[str, Bound], *, now: datetime) -> Observation:
        """Return how far to bind the union with an epoch that leaves the inputs so; see `Derived`."""
        return derived(self.made_of, mine, inputs, now=now)

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Ask the inputs. A run does not: there they are asked for themselves."""
        found: dict[str, Bound] = {}
        for one in self.inputs:
            known = self._bound(newest(one.name, bound.details), bound)
            seen = one.source.probe(known, now=now)
            found[one.name] = replace(
                known,
                frontier=seen.upper,
                details={**known.details, **seen.details},
                identity=seen.identity or known.identity,
                last=seen,
            )
        return self.derive(bound, found, now=now)

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Let each input plan its slices."""
        found: list[Split] = []
        for life, pieces in _by_life(slices).items():
            with _told_apart(life):
                splits = self._source(life).plan(pieces, self._bound(life, bound))
            found += (UnionSplit(life, split) for split in splits)
        return sorted(found, key=lambda split: (split.epoch, split.partition, split.lower))

    def read(self, split: UnionSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split with the union's columns."""

        def bad(record: BadRecord) -> None:
            on_bad_record(replace(record, partition=split.life.partition(record.partition)))

        for batch in self._source(split.life).read(split.split, bad):
            yield aligned(batch, self.schema, name=split.life.name)

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: the inputs are told."""

    def joined(self, splits: Iterable[UnionSplit]) -> Iterator[Split]:
        """Let each input put its splits together; see `Joining`."""
        for life, some in groupby(splits, key=lambda split: split.life):
            source = self._source(life)
            theirs = [split.split for split in some]
            for split in source.joined(theirs) if isinstance(source, Joining) else theirs:
                yield UnionSplit(life, split)

    def confirm(self, bound: Bound) -> None:
        """Let each input that the union has records of confirm its present upstream; see `Confirming`."""
        self._confirm({newest(one.name, bound.details) for one in self.inputs}, bound)

    def confirm_read(self, splits: Iterable[Split], bound: Bound) -> None:
        """Let those inputs confirm their upstreams that splits were read of, and no earlier life."""
        self._confirm({split_of(split.partition)[0] for split in splits}, bound)

    def _confirm(self, lives: Iterable[InputLife], bound: Bound) -> None:
        for life in sorted(lives):
            source, known = self._source(life), self._bound(life, bound)
            if isinstance(source, Confirming) and known.frontier:
                with _told_apart(life):
                    source.confirm(known)

    def loss_of(self, partition: str) -> str:
        """Return the code of the error that a loss in a partition is; "" where its input never goes on without."""
        source = self._source(split_of(partition)[0])
        return source.loss if isinstance(source, GoingOn) else ""

    @property
    def loss(self) -> str:
        """The code of the error that a loss is for the first input that may go on; `loss_of` says it of each."""
        return next((code for one in self.inputs if (code := getattr(one.source, "loss", ""))), "")

    def lost(self, slices: Sequence[Slice], bound: Bound) -> Sequence[Slice]:
        """Return what the inputs give up; see `GoingOn`."""
        found: list[Slice] = []
        for life, pieces in _by_life(slices).items():
            source = self._source(life)
            if isinstance(source, GoingOn):
                with _told_apart(life):
                    gone = source.lost(pieces, self._bound(life, bound))
                union = slices[0].source
                found += (replace(hole, source=union, partition=life.partition(hole.partition)) for hole in gone)
        return found

    def record_at(self, piece: Slice, position: int, bound: Bound) -> tuple[int, int] | None:
        """Return the ends of the record that a position is inside of; see `Divided`."""
        life, there = _of(piece)
        source = self._source(life)
        return source.record_at(there, position, self._bound(life, bound)) if isinstance(source, Divided) else None

    def size(self, piece: Slice, bound: Bound) -> int:
        """Return how many positions of a slice may hold a record; see `Cuttable`."""
        life, there = _of(piece)
        source = self._source(life)
        return source.size(there, self._bound(life, bound)) if isinstance(source, Cuttable) else piece.size

    def cut(self, piece: Slice, size: int, bound: Bound) -> int | None:
        """Return where a slice may be cut; see `Cuttable`."""
        life, there = _of(piece)
        source = self._source(life)
        return source.cut(there, size, self._bound(life, bound)) if isinstance(source, Cuttable) else None

    def _source(self, life: InputLife) -> Source:
        for one in self.inputs:
            if one.name == life.name:
                return one.source
        raise InputMissing(input=life.name, known=", ".join(map(repr, self.made_of)))

    def _bound(self, life: InputLife, bound: Bound) -> Bound:
        return bound_of(life, bound, schema=self._source(life).schema)


@contextmanager
def _told_apart(life: InputLife) -> Iterator[None]:
    """Say of an upstream that was created again that it is an input's."""
    try:
        yield
    except UpstreamRecreated as error:
        known, found = error.evidence["known"], error.evidence["found"]
        raise InputRecreated(input=life.name, found=found, known=known) from error


def _of(piece: Slice) -> tuple[InputLife, Slice]:
    """Return the life that a slice is of, and the slice as its input has it."""
    life, partition = split_of(piece.partition)
    return life, replace(piece, source=life.name, partition=partition)


def _by_life(slices: Sequence[Slice]) -> dict[InputLife, list[Slice]]:
    """Return the slices of each life of an input, as that has them, in their order."""
    found: dict[InputLife, list[Slice]] = {}
    for piece in slices:
        life, there = _of(piece)
        found.setdefault(life, []).append(there)
    return found
