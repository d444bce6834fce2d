"""Who is staged together, and who apart: pure decisions.

As long as all is well there is one group: its outputs are staged in one job after the other, so that a slice is read
once, however many want it. A source that cannot be read at present is put *apart*: its outputs are staged in jobs of
their own, tried again after growing delays, and nobody else waits for them. So is an output whose storage is full or
away. Either joins the others again once a job of its own has gone well and it lacks no epoch that they have.

Invariants. An output is in one group, its own or that of its source, so the jobs of two groups have no output in
common. There are never more groups than sources, outputs and one.

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
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidegauge.errors.patience import waited_out
from tidegauge.job.need import Need, next_need
from tidegauge.sources.sweep import backoff

__all__ = ["Apart", "Group", "Groups", "Trouble", "needs"]


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
