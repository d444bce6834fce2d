"""What the next job is, for whom, and what its result means for each output: pure decisions.

Which epochs (`next_need`). Outputs that follow live have one upper, and one job serves them all. After a crash
between two commits, or when an output is new, some are behind: they are served first, up to where the next ones
stand, and then go on together. By law 1 it makes no difference to any table how the epochs are cut into jobs.

>>> next_need({"a": 5, "b": 5}, limits={}, sealed=8)
Need(outputs=('a', 'b'), lower=5, upper=8)
>>> next_need({"a": 5, "b": 7}, limits={}, sealed=8)
Need(outputs=('a',), lower=5, upper=7)
>>> next_need({"a": 5, "b": 7}, limits={"a": 5}, sealed=8)
Need(outputs=('b',), lower=7, upper=8)
>>> next_need({"a": 8, "b": 8}, limits={}, sealed=8) is None
True

Who is staged together (`Groups`). As long as all is well there is one group: its outputs are staged in one job after
the other, so that a slice is read once, however many want it. A source that cannot be read at present is put *apart*:
its outputs are staged in jobs of their own, tried again after growing delays, and nobody else waits for them. So is
an output whose storage is full or away. Either joins the others again once a job of its own has gone well and it
lacks no epoch that they have.

>>> from tidegauge.errors.running import SourceUnreachable
>>> error = SourceUnreachable(source="orders", error="TimeoutError", detail="no answer")
>>> readers = {"large": "orders", "all": "orders", "clicks": "clicks"}
>>> orders = Apart("orders")
>>> groups = Groups().failed(orders, error, now=100.0)
>>> uppers = {"large": 5, "all": 5, "clicks": 5}
>>> needs(groups, uppers, readers, limits={}, sealed=8)
{None: Need(outputs=('clicks',), lower=5, upper=8), orders: Need(outputs=('large', 'all'), lower=5, upper=8)}
>>> round(groups.rests(orders, now=100.05), 2), groups.rests(None, now=100.05)
(0.15, 0.0)
>>> uppers = {"large": 7, "all": 7, "clicks": 8}
>>> groups.passed(orders).joined(uppers, readers, busy=()).group("all", "orders")  # it still lacks epoch 7
orders
>>> print(groups.passed(orders).joined({**uppers, "large": 8, "all": 8}, readers, busy=()).group("all", "orders"))
None
>>> full = Groups().failed(Apart("orders", "large"), OSError(28, "No space left on device"), now=100.0)
>>> full.group("large", "orders"), full.group("all", "orders")
(large of orders, None)

What a result means (`judge`).

    transient error of a source         -> `away`: its outputs are staged again, apart; nothing of theirs is kept
    transient error of one output       -> `stuck`: it alone is staged again, apart; nothing of its own is kept
    definite error of a source or an    -> `ends`: the outputs concerned get the epochs before it, and no more
    output, at an epoch
    everything else                     -> `kept`: the output gets what was staged for it

>>> from tidegauge.errors.engine import ReadFailed
>>> from tidegauge.job.plan import Staged
>>> failures = (Failure("orders", None, 7, ReadFailed(source="orders", place="orders-0", detail="timed out")),)
>>> result = JobResult({"all": Staged((), 3), "clicks": Staged((), 2)}, failures)
>>> found = judge(("all", "clicks"), result, {"all": "orders", "clicks": "clicks"})
>>> found.kept, sorted(found.away), sorted(found.stuck), found.ends
(('clicks',), ['orders'], [], {})

Invariants. An output is in one group, its own or that of its source, so the jobs of two groups have no output in
common; there are never more groups than sources, outputs and one. Every output of a need is in exactly one part of
its verdict. The files that a job has staged for an output are complete unless a failure of the output, or of its
source, is in the result; so keeping them does not depend on which others failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidegauge.errors.base import TidegaugeError, Transient, waited_out
from tidegauge.job.plan import JobResult
from tidegauge.remap.round import Failure
from tidegauge.sources.sweep import backoff

__all__ = ["Apart", "Group", "Groups", "Need", "Trouble", "Verdict", "endings", "judge", "needs", "next_need"]


@dataclass(frozen=True, slots=True)
class Need:
    """These outputs need the epochs `[lower, upper)`."""

    outputs: tuple[str, ...]
    lower: int
    upper: int


def next_need(uppers: Mapping[str, int], *, limits: Mapping[str, int], sealed: int) -> Need | None:
    """Return the next need, or None when no output is behind.

    uppers: the first epoch that each output lacks. limits: outputs that have failed, with the epoch at which they
    end. sealed: epochs before it are bound and complete.
    """
    behind = {o: u for o, u in uppers.items() if u < min(sealed, limits.get(o, sealed))}
    if not behind:
        return None
    lower = min(behind.values())
    group = tuple(o for o, u in behind.items() if u == lower)
    ends = [limits[o] for o in group if o in limits] + [u for u in behind.values() if u > lower]
    return Need(group, lower, min([sealed, *ends]))


@dataclass(frozen=True, slots=True, repr=False)
class Apart:
    """A source that is staged apart, or one output of it."""

    source: str
    output: str | None = None

    def __repr__(self) -> str:
        return self.source if self.output is None else f"{self.output} of {self.source}"


Group: TypeAlias = Apart | None
"""Who is staged apart, or None: all the others, together."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """How a group has failed since it last went well.

    attempt: how often in a row. counted: how often of these for a reason that is not `waited_out`. until: the instant
    of the next attempt.
    """

    attempt: int = 0
    counted: int = 0
    until: float = float("-inf")


_NONE: Final = Trouble()


@dataclass(frozen=True, slots=True)
class Groups:
    """Who is apart, and the groups that rest. A source or an output that is a key of `troubles` is apart."""

    troubles: Mapping[Group, Trouble] = field(default_factory=dict)

    def group(self, output: str, source: str) -> Group:
        """Return the group of an output of a source."""
        return next((group for group in (Apart(source, output), Apart(source)) if group in self.troubles), None)

    def trouble(self, group: Group) -> Trouble:
        """Return how a group has failed since it last went well."""
        return self.troubles.get(group, _NONE)

    def rests(self, group: Group, *, now: float) -> float:
        """Return the seconds until a group may be tried again, 0 when it may be now."""
        return max(0.0, self.trouble(group).until - now)

    def failed(self, group: Group, error: BaseException, *, now: float) -> Groups:
        """Return the groups after a failure of one; who was with the others is apart from now on."""
        before = self.trouble(group)
        attempt = before.attempt + 1
        trouble = Trouble(attempt, before.counted + (not waited_out(error)), now + backoff(attempt))
        return Groups({**self.troubles, group: trouble})

    def passed(self, group: Group) -> Groups:
        """Return the groups after a job of one that went well. Who is apart stays so until it has `joined`."""
        return self if group not in self.troubles else Groups({**self.troubles, group: _NONE})

    def joined(self, uppers: Mapping[str, int], readers: Mapping[str, str], *, busy: Collection[Group]) -> Groups:
        """Return the groups without those who need not be apart any more.

        uppers: of the outputs that go on. readers: the source that each reads. busy: groups with a job under way.
        """
        over = {g for g, t in self.troubles.items() if t == _NONE and g not in busy}
        if not over:
            return self
        stand: dict[Group, int] = {}
        for output, upper in uppers.items():
            group = self.group(output, readers[output])
            stand[group] = min(upper, stand.get(group, upper))
        foremost = stand.get(None, 0)
        late = {g for g in over if g is not None and stand.get(g, foremost) < foremost}
        return Groups({group: trouble for group, trouble in self.troubles.items() if group not in over - late})


def needs(
    groups: Groups,
    uppers: Mapping[str, int],
    readers: Mapping[str, str],
    *,
    limits: Mapping[str, int],
    sealed: int,
) -> dict[Group, Need]:
    """Return what each group needs next, the common one first; see `next_need`."""
    parts: dict[Group, dict[str, int]] = {None: {}}
    for output, upper in uppers.items():
        parts.setdefault(groups.group(output, readers[output]), {})[output] = upper
    found = {group: next_need(part, limits=limits, sealed=sealed) for group, part in parts.items()}
    return {group: need for group, need in found.items() if need is not None}


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
