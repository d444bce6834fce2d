"""Going on with a source that has failed: as before, with a new incarnation of its upstream, or past a range.

A failure is durable, and nothing but a person knows that its cause is gone. *Going on as before* forgets the failure:
the next run comes to the same epoch again, and fails again where the cause is still there. *A new incarnation* is for
an upstream that was recreated (law 8): it begins at the next epoch, at the beginning of the new upstream. *Skipping*
is for a range that cannot be read, or is lost: each epoch's part of it becomes a row of `gaps`, and from then on the
content of an epoch is its slices without its gaps (law 1), for all readers. An output that holds the epoch already is
not changed.

Invariants (law 9). Nothing reads bound records of the old upstream that some output lacks any more: a new incarnation
begins only when there are none, or when the loss is accepted, and then each range of it is a row of `gaps`, in the
same transaction. No other record is skipped than those of the range; one that is not bound, that was compacted away,
or that cuts a record is refused, and one that is skipped already is not recorded twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import InsideRecord, PassedOver, RangeNotBound
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.polls import PollGone
from tidegauge.errors.running import LossNotAccepted, NothingToResume, UpstreamRecreated
from tidegauge.errors.unions import InputRecreated
from tidegauge.flow.belonging import check_all, table_of
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.durable import left_behind, passed, without
from tidegauge.looking.inspect import opened
from tidegauge.looking.locate import key_of
from tidegauge.reclock.slices import begins
from tidegauge.remap.binding import Slice
from tidegauge.remap.store import Gap, Lease, LeaseHolder, Loaded, Store
from tidegauge.sinks.mending import REPAIRABLE
from tidegauge.sources.abilities import Divided
from tidegauge.sources.protocol import Source
from tidegauge.sources.union import UnionSource
from tidegauge.sources.union.places import split_of

Lacked: TypeAlias = tuple[Slice, list[str], str]
"""A bound range, the outputs that lack it, and why nobody can read it any more."""

__all__ = ["Resumed", "Skipped", "lacking", "leased", "resume", "skip"]


@dataclass(frozen=True, slots=True)
class Resumed:
    """A source that goes on with the next run.

    incarnation: the number of its incarnation, and began_at: the epoch at which that begins, or began. gaps: the
    ranges that are lost now.
    """

    source: str
    incarnation: int
    began_at: int
    gaps: tuple[Gap, ...] = ()


def resume(
    flow: Flow, source: str, *, new_incarnation: bool = False, accept_loss: bool = False, env: Env | None = None
) -> Resumed:
    """Let a failed source go on with the next run; see the module.

    With `new_incarnation` and `accept_loss`, also where a source has begun one already, and an output has come back
    since that lacks records of the old one (`OutputBelowIncarnation`).

    Args:
        flow: the flow of the source.
        source: the name of the source.
        new_incarnation: begin with the present upstream, from its beginning.
        accept_loss: do so even if some output lacks bound records of the old upstream. False, because they are then
            lost for good.
        env: the world, for tests.

    Raises `NothingToResume`, `LossNotAccepted`, `FlowAlreadyRunning`, `FlowNeverRan`, `UnknownName`, and whatever a
    run raises if the store and the tables do not have one history.
    """
    spec = flow.spec
    if accept_loss and not new_incarnation:
        raise InvalidArgument(parameter="accept_loss", value=True, expected="it together with new_incarnation")
    unit = spec.source(source).unit
    env = env or Env()
    with opened(spec, env) as store, leased(store, spec.name, env) as lease:
        loaded = store.load(spec.name)
        check_all(spec, store, loaded)
        behind = _left_behind(spec, loaded, source) if new_incarnation else []
        over, lift = (behind, False) if behind and loaded.sources[source].failure is None else (None, True)
        if over is None and new_incarnation and isinstance(union := spec.sources[source], UnionSource):
            over = _united_anew(spec, loaded, source, union)
        if over is not None:
            gaps = _accepted(over, source, unit, accept_loss=accept_loss, at=env.now())
            store.pass_over(lease, source, gaps, lift=lift)
            return Resumed(source, loaded.sources[source].incarnation, loaded.sources[source].began_at, gaps)
        error = _failure(loaded, source)
        if not new_incarnation:
            store.clear_failure(lease, source)
            return Resumed(source, loaded.sources[source].incarnation, loaded.sources[source].began_at)
        if not isinstance(error, UpstreamRecreated | PollGone):
            raise NothingToResume(
                source=source, how=" as a new incarnation", state=f"it has failed with {error.code}, {error.summary}"
            )
        if spec.following is not None:
            state = f"its epochs are those of flow {spec.following.flow!r}, where it is resumed"
            raise NothingToResume(source=source, how=" as a new incarnation", state=state)
        at = env.now()
        missing = [(piece, outputs, error.summary) for piece, outputs in lacking(spec, loaded, source)]
        gaps = _accepted([*behind, *missing], source, unit, accept_loss=accept_loss, at=at)
        number = store.begin_incarnation(lease, source, at=at, reason=error.summary, gaps=gaps)
        return Resumed(source, number, loaded.flow.upper, gaps)


def _united_anew(flow: FlowSpec, loaded: Loaded, source: str, union: UnionSource) -> list[Lacked]:
    """Return what outputs of a union lack of upstreams that its inputs had before.

    Raises `NothingToResume` where it has not failed of that, or an input is to be resumed first.
    """
    error = _failure(loaded, source)
    if not isinstance(error, InputRecreated):
        state = f"it has failed with {error.code}, {error.summary}"
        raise NothingToResume(source=source, how=" as a new incarnation", state=state)
    for name in union.made_of:
        failure = loaded.sources[name].failure
        if failure is not None and isinstance(failure[1], UpstreamRecreated | PollGone):
            state = f"its input {name!r} has failed with {failure[1].code}, and is to be resumed first"
            raise NothingToResume(source=source, how=" as a new incarnation", state=state)
    found = [(split_of(piece.partition)[0], piece, outputs) for piece, outputs in lacking(flow, loaded, source)]
    return [
        (piece, outputs, error.summary)
        for life, piece, outputs in found
        if life.name in loaded.sources and life.incarnation < loaded.sources[life.name].incarnation
    ]


@contextmanager
def leased(store: Store, flow: str, env: Env) -> Iterator[Lease]:
    """Hold a flow's lease for a moment. Raises `FlowAlreadyRunning`."""
    lease = store.acquire(flow, holder=LeaseHolder.current(env))
    try:
        yield lease
    finally:
        lease.release()


def _failure(loaded: Loaded, source: str) -> TidegaugeError:
    """Return why a source has failed. Raises `NothingToResume` when it has not."""
    if source not in loaded.sources:
        raise NothingToResume(source=source, how="", state="it has not run yet")
    failure = loaded.sources[source].failure
    if failure is None:
        raise NothingToResume(source=source, how="", state="it has not failed")
    return failure[1]


def lacking(flow: FlowSpec, loaded: Loaded, source: str) -> list[tuple[Slice, list[str]]]:
    """Return the bound ranges of a source that are not in every output, each with the outputs that lack it."""
    found, since = loaded.sources[source], loaded.flow.since
    lowers: dict[str, int] = {}
    for name, plan in flow.outputs.items():
        if plan.source == source:
            ends = loaded.outputs[name].reached(_upper(flow, name, loaded)) if name in loaded.outputs else 0
            begin = begins(ends, since=since, folded=found.folded)
            lowers[name] = since if begin is None else begin
    upper = found.table.upper
    return [
        (piece, sorted(name for name, lower in lowers.items() if lower <= piece.epoch))
        for piece in found.table.slices(min([upper, *lowers.values()]), upper)
    ]


def _upper(flow: FlowSpec, output: str, loaded: Loaded) -> int:
    """Return the first epoch that a table lacks; 0 for one that others have damaged, which may lack any."""
    try:
        return table_of(flow, output, loaded).upper
    except REPAIRABLE:
        return 0


def _left_behind(flow: FlowSpec, loaded: Loaded, source: str) -> list[Lacked]:
    """Return what outputs lack of incarnations that are over already, and is no gap."""
    if source not in loaded.sources:
        return []
    found: dict[Slice, list[str]] = {}
    for name, plan in sorted(flow.outputs.items()):
        if plan.source == source and name in loaded.outputs:
            for piece in left_behind(loaded, source, loaded.outputs[name].reached(_upper(flow, name, loaded))):
                found.setdefault(piece, []).append(name)
    lives = loaded.sources[source].incarnations
    return [
        (piece, names, next(life.reason for life in lives if life.began_at > piece.epoch))
        for piece, names in sorted(found.items(), key=lambda one: (one[0].epoch, one[0].partition, one[0].lower))
    ]


def _accepted(
    missing: Sequence[Lacked], source: str, unit: str, *, accept_loss: bool, at: datetime
) -> tuple[Gap, ...]:
    """Return the gaps that what outputs lack becomes. Raises `LossNotAccepted`."""
    if missing and not accept_loss:
        raise LossNotAccepted(
            source=source,
            size=sum(piece.size for piece, _, _ in missing),
            unit=unit,
            first=missing[0][0].epoch,
            last=missing[-1][0].epoch,
            outputs=sorted({output for _, outputs, _ in missing for output in outputs}),
        )
    return tuple(
        Gap(
            p.source,
            p.epoch,
            p.partition,
            p.lower,
            p.upper,
            at,
            UpstreamRecreated.code,
            f"{', '.join(names)} lacks it, and {why}",
        )
        for p, names, why in missing
    )


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
        known = passed(loaded).get(source, [])
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
