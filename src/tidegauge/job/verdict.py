"""What a job's result means for each of its outputs: a pure decision.

    transient error of a source         -> `away`: its outputs are staged again, apart; nothing of theirs is kept
    transient error of one output       -> `stuck`: it alone is staged again, apart; nothing of its own is kept
    definite error of a source or an    -> `ends`: the outputs concerned get the epochs before it, and no more
    output, at an epoch
    everything else                     -> `kept`: the output gets what was staged for it

Invariant: every output of the need is in exactly one of these. The files that a job has staged for an output are
complete unless a failure of the output, or of its source, is in the result; so keeping them does not depend on which
others failed.

>>> from tidegauge.errors.engine import ReadFailed
>>> from tidegauge.job.plan import Staged
>>> failures = (Failure("orders", None, 7, ReadFailed(source="orders", place="orders-0", detail="timed out")),)
>>> result = JobResult({"all": Staged((), 3), "clicks": Staged((), 2)}, failures)
>>> found = judge(("all", "clicks"), result, {"all": "orders", "clicks": "clicks"})
>>> found.kept, sorted(found.away), sorted(found.stuck), found.ends
(('clicks',), ['orders'], [], {})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.job.plan import JobResult
from tidegauge.remap.round import Failure

__all__ = ["Verdict", "endings", "judge"]


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
