"""Going on past a range of records: past one that cannot be read, or one that is lost.

Each epoch's part of the range becomes a row of `gaps`, in one transaction with the end of the failure that stands
there. From then on the content of an epoch is its slices without its gaps (law 1), for all readers. An output that
holds the epoch already is not changed.

Invariant: no other record is skipped. A range that is not bound, that was compacted away, or that cuts a record is
refused; a range that is skipped already is not recorded twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegauge.env import Env
from tidegauge.errors.command import InsideRecord, PassedOver, RangeNotBound
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.running import NothingToResume
from tidegauge.flow.belonging import check_all
from tidegauge.flow.spec import Flow
from tidegauge.job.durable import passed, without
from tidegauge.looking.inspect import opened
from tidegauge.looking.locate import key_of
from tidegauge.maintenance.resume import lacking, leased
from tidegauge.remap.binding import Slice
from tidegauge.remap.store import Gap, Loaded
from tidegauge.sources.protocol import Divided, Source

__all__ = ["Skipped", "skip"]


@dataclass(frozen=True, slots=True)
class Skipped:
    """The ranges that were skipped now, as rows of `gaps`. lifted: whether the source had failed there, and goes
    on."""

    source: str
    partition: str
    gaps: tuple[Gap, ...]
    lifted: bool


def skip(flow: Flow, source: str, partition: str, lower: int, upper: int, *, env: Env | None = None) -> Skipped:
    """Skip the positions `[lower, upper)` of a partition, given by its key or by a file's path; see the module.

    Not while the flow runs. Raises `RangeNotBound`, `InsideRecord`, `UnknownPartition`, `AmbiguousPath`,
    `FlowAlreadyRunning`, `FlowNeverRan`, `UnknownName`, `InvalidArgument`.
    """
    spec = flow.spec
    if not 0 <= lower < upper:
        raise InvalidArgument(
            parameter="the range", value=f"{lower} to {upper}", expected="two positions, the lesser first"
        )
    upstream = spec.source(source)
    env = env or Env()
    with opened(spec, env) as store, leased(store, spec.name, env) as lease:
        loaded = store.load(spec.name)
        if source not in loaded.sources:
            raise NothingToResume(source=source, how="", state="it has not run yet")
        check_all(spec, store, loaded)
        key = key_of(loaded.sources[source], source, partition)
        whole = _slices(loaded, source, key, lower, upper)
        cut = [replace(piece, lower=max(lower, piece.lower), upper=min(upper, piece.upper)) for piece in whole]
        _check_records(upstream, loaded, whole, (lower, upper))
        outputs = {(piece.epoch, piece.partition): names for piece, names in lacking(spec, loaded, source)}
        known = passed(loaded, store.gaps(spec.name)).get(source, [])
        gaps = []
        for hole in without(cut, known):
            what = PassedOver(source=source, partition=key, lower=hole.lower, upper=hole.upper)
            names = ", ".join(outputs.get((hole.epoch, key), [])) or "no output"
            reason = f"{names} lacks it: it was passed over by hand"
            gaps.append(Gap(source, hole.epoch, key, hole.lower, hole.upper, env.now(), what.code, reason))
        failure = loaded.sources[source].failure
        lifted = failure is not None and failure[0] in {piece.epoch for piece in cut}
        store.pass_over(lease, source, gaps, lift=lifted)
        return Skipped(source, key, tuple(gaps), lifted)


def _slices(loaded: Loaded, source: str, key: str, lower: int, upper: int) -> list[Slice]:
    """Return the bound slices that a range touches. Raises `RangeNotBound` when they do not cover it."""

    def refused(why: str) -> RangeNotBound:
        return RangeNotBound(source=source, partition=key, lower=lower, upper=upper, why=why)

    found, since = loaded.sources[source], loaded.flow.since
    table = found.table
    if upper > table.frontier[key]:
        raise refused(f"the first {table.frontier[key]} are bound")
    first = max(table.since, found.began_at)
    pieces = [
        s for s in table.slices(first, table.upper) if s.partition == key and s.lower < upper and lower < s.upper
    ]
    if since and any(piece.epoch <= since for piece in pieces):
        raise refused(f"some are of the epochs up to {since}, which were compacted and can no longer be told apart")
    return pieces


def _check_records(source: Source, loaded: Loaded, pieces: Sequence[Slice], ends: tuple[int, int]) -> None:
    """Raise `InsideRecord` for an end that is inside of a record, where that can be told."""
    if not isinstance(source, Divided):
        return
    found = loaded.sources[pieces[0].source]
    bound = found.bound
    for piece in pieces:
        for position in ends:
            if piece.lower < position < piece.upper and (record := source.record_at(piece, position, bound)):
                raise InsideRecord(
                    source=piece.source,
                    partition=piece.partition,
                    position=position,
                    record=f"from {record[0]} to {record[1]}",
                )
