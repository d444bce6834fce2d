"""The verdict on a job: what its result means for each of its outputs. Pure decisions.

    transient error of a source         -> `away`: its outputs are staged again, apart; nothing of theirs is kept
    transient error of one output       -> `stuck`: it alone is staged again, apart; nothing of its own is kept
    definite error of a source or an    -> `ends`: the outputs concerned get the epochs before it, and no more
    output, at an epoch
    everything else                     -> `kept`: the output gets the files staged for it

>>> from tidegauge.errors.engine import ReadFailed
>>> from tidegauge.job.plan import Staged
>>> failures = (Failure("orders", None, 7, ReadFailed(source="orders", place="orders-0", detail="timed out")),)
>>> result = JobResult({"all": Staged((), 3), "clicks": Staged((), 2)}, failures)
>>> found = judge(("all", "clicks"), result, {"all": "orders", "clicks": "clicks"})
>>> found.kept, sorted(found.away), sorted(found.stuck), found.ends
(('clicks',), ['orders'], [], {})

What a late output finds is its own: the others have read those epochs, so it fails and the source does not (`own`).

Invariants. Every output of a need is in exactly one part of its verdict. The files that a job has staged for an
output are complete unless a failure of the output, or of its source, is in the result; so keeping them does not
depend on which others failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.outputs import PastGone
from tidegauge.job.plan import JobResult
from tidegauge.remap.binding import Slice
from tidegauge.remap.round import Failure

__all__ = ["Verdict", "endings", "given_up", "judge", "keeping", "own"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the outputs of a job.

    kept: those that get their staged rows. away: sources that cannot be read at present. stuck: outputs that cannot
    be written at present. ends: the epoch at which outputs end that a definite failure concerns. failures: these
    failures.
    """

    kept: tuple[str, ...]
    away: Mapping[str, TidegaugeError]
    stuck: Mapping[str, TidegaugeError]
    ends: Mapping[str, int]
    failures: tuple[Failure, ...]


def own(
    outputs: Collection[str],
    result: JobResult,
    readers: Mapping[str, str],
    uppers: Mapping[str, int],
    old: Mapping[str, int],
) -> JobResult:
    """Return the result of a job for late outputs. A failure of a source that a table has got past is theirs alone.

    uppers: of all outputs that go on. old: of the tables whose rows are to change places with new ones.
    """
    failures = list[Failure]()
    for failure in result.failures:
        others = {name: upper for name, upper in uppers.items() if name not in outputs}
        past = [upper for name, upper in chain(others.items(), old.items()) if readers[name] == failure.source]
        if (
            failure.output is not None
            or isinstance(failure.error, Transient)
            or max(past, default=0) <= failure.epoch
        ):
            failures.append(failure)
        else:
            failures += [replace(failure, output=name) for name in outputs if readers[name] == failure.source]
    return replace(result, failures=tuple(failures))


def keeping(
    outputs: Collection[str], lost: Iterable[Slice], readers: Mapping[str, str], old: Mapping[str, int]
) -> tuple[Failure, ...]:
    """Return the failures of outputs that would give up rows of their tables, though some cannot be made again.

    lost: what their sources go on without. old: the upper of the tables whose rows are to change places with others.
    """
    first: dict[str, Slice] = {}
    for hole in sorted(lost, key=lambda hole: hole.epoch):
        for name in outputs:
            if readers[name] == hole.source and hole.epoch < old.get(name, 0):
                first.setdefault(name, hole)
    return tuple(
        Failure(
            hole.source,
            name,
            hole.epoch,
            PastGone(
                output=name,
                source=hole.source,
                partition=hole.partition,
                lower=hole.lower,
                upper=hole.upper,
                epoch=hole.epoch,
            ),
        )
        for name, hole in first.items()
    )


def endings(failures: Iterable[Failure], readers: Mapping[str, str]) -> dict[str, int]:
    """Return the epoch at which each output concerned by definite failures ends: the least one found."""
    ends: dict[str, int] = {}
    for failure in failures:
        for name, source in readers.items():
            if name == failure.output or (failure.output is None and source == failure.source):
                ends[name] = min(failure.epoch, ends.get(name, failure.epoch))
    return ends


def judge(outputs: Sequence[str], result: JobResult, readers: Mapping[str, str]) -> Verdict:
    """Say what a result means for the outputs that its job was for. readers: the source that each output reads."""
    away: dict[str, TidegaugeError] = {}
    for failure in result.failures:
        if failure.output is None and isinstance(failure.error, Transient):
            away.setdefault(failure.source, failure.error)
    rest = tuple(failure for failure in result.failures if failure.source not in away)
    stuck: dict[str, TidegaugeError] = {}
    for failure in rest:
        if failure.output is not None and isinstance(failure.error, Transient):
            stuck.setdefault(failure.output, failure.error)
    definite = tuple(failure for failure in rest if failure.output not in stuck)
    ends = {name: epoch for name, epoch in endings(definite, readers).items() if name not in stuck}
    kept = tuple(name for name in outputs if readers[name] not in away and name not in ends and name not in stuck)
    return Verdict(kept, away, stuck, ends, definite)


def given_up(
    outputs: Collection[str],
    lost: Iterable[Slice],
    readers: Mapping[str, str],
    *,
    away: Collection[str],
    spared: Iterable[Failure],
) -> tuple[list[Slice], list[str]]:
    """Return the lost ranges that outputs of a job go on without, and these outputs.

    lost: what their sources go on without. away: sources whose outputs get nothing of this job. spared: the failures
    of outputs that do not give it up (`keeping`).
    """
    failed = {failure.output for failure in spared}
    losing = {name: readers[name] for name in outputs if name not in failed}
    holes = [hole for hole in lost if hole.source in losing.values() and hole.source not in away]
    sources = {hole.source for hole in holes}
    return holes, [name for name, source in losing.items() if source in sources]
