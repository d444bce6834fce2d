"""The next job, and for whom it is: pure decisions. `verdict` has what its result means.

Which epochs (`next_need`). Outputs that follow live have one upper, and one job serves them all. After a crash
between two commits some are behind: they are served first, up to where the next ones stand, and then go on together.
By law 1 it makes no difference to any table how the epochs are cut into jobs.

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

An output that lacks epochs which are published is *late*: it is new, or it had failed. The late outputs of a source
are staged together in jobs of their own, whatever the others do, until they lack nothing that the others have. They
are a group also while something is wrong with their source: the others have read its old epochs long ago.

>>> late = Groups(late=frozenset({"new"}))
>>> readers, uppers = {"all": "orders", "new": "orders"}, {"all": 7, "new": 2}
>>> needs(late, uppers, readers, limits={}, sealed=8)
{None: Need(outputs=('all',), lower=7, upper=8), late of orders: Need(outputs=('new',), lower=2, upper=8)}
>>> late.joined(uppers, readers, busy=()) == late, late.joined({"all": 7, "new": 7}, readers, busy=()) == Groups()
(True, True)

One that gets what it lacks from another output's table is staged with those that get it from there, too.

>>> both = Groups(late=frozenset({"new", "by_day"}), pasts={"by_day": "all"})
>>> found = needs(both, {"all": 7, "new": 2, "by_day": 2}, {**readers, "by_day": "orders"}, limits={}, sealed=8)
>>> found[Late("orders", "all")]
Need(outputs=('by_day',), lower=2, upper=8)

Invariants. An output is in one group, its own or that of its source, so the jobs of two groups have no output in
common; there are never more groups than twice the sources, outputs and one. The outputs of a group are all late, or
none is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from tidegauge.errors.base import waited_out
from tidegauge.reclock.parts import START, Cursor
from tidegauge.sources.sweep import backoff

__all__ = [
    "Apart",
    "Group",
    "Groups",
    "Late",
    "Need",
    "Trouble",
    "needs",
    "next_need",
]


_NOWHERE: Final[Mapping[str, Cursor]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Need:
    """These outputs need the epochs `[lower, upper)`.

    Of the first one what comes before `begin` is staged; of the last one what comes from `end` on is not meant,
    unless that is `START`.
    """

    outputs: tuple[str, ...]
    lower: int
    upper: int
    begin: Cursor = field(default=START, repr=False)
    end: Cursor = field(default=START, repr=False)


def next_need(
    uppers: Mapping[str, int], *, limits: Mapping[str, int], sealed: int, cursors: Mapping[str, Cursor] = _NOWHERE
) -> Need | None:
    """Return the next need, or None when no output is behind.

    uppers: the first epoch that each output lacks. limits: outputs that have failed, with the epoch at which they
    end. sealed: epochs before it are bound and complete. cursors: of outputs that have a part of that first epoch,
    how much; all of one source.

    >>> need = next_need({"a": 5, "b": 5}, limits={}, sealed=8, cursors={"b": Cursor("p0", 3)})
    >>> need, need.end
    (Need(outputs=('a',), lower=5, upper=6), Cursor(partition='p0', position=3))
    """
    behind = {o: (u, cursors.get(o, START)) for o, u in uppers.items() if u < min(sealed, limits.get(o, sealed))}
    if not behind:
        return None
    lower, begin = least = min(behind.values())
    group = tuple(o for o, at in behind.items() if at == least)
    ends = [(limits[o], START) for o in group if o in limits] + [at for at in behind.values() if at > least]
    upper, end = min([(sealed, START), *ends])
    return Need(group, lower, upper if end == START else upper + 1, begin, end)


@dataclass(frozen=True, slots=True, repr=False)
class Apart:
    """A source that is staged apart, or one output of it."""

    source: str
    output: str | None = None

    def __repr__(self) -> str:
        return self.source if self.output is None else f"{self.output} of {self.source}"


@dataclass(frozen=True, slots=True, repr=False)
class Late:
    """The late outputs of a source; past: that get what they lack from the table of this output."""

    source: str
    past: str | None = None

    def __repr__(self) -> str:
        return f"late of {self.source}" + ("" if self.past is None else f", from the table of {self.past}")


Group: TypeAlias = Apart | Late | None
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
    """Who is apart, and the groups that rest. A source or an output that is a key of `troubles` is apart.

    late: the outputs that are. pasts: by output, the one from whose table it gets what it lacks while it is late.
    """

    troubles: Mapping[Group, Trouble] = field(default_factory=dict)
    late: frozenset[str] = frozenset()
    pasts: Mapping[str, str] = field(default_factory=dict)

    @property
    def one(self) -> bool:
        """Whether all outputs are in one group."""
        return not self.troubles and not self.late

    def group(self, output: str, source: str) -> Group:
        """Return the group of an output of a source."""
        if (alone := Apart(source, output)) in self.troubles:
            return alone
        if output in self.late:
            return Late(source, self.pasts.get(output))
        return Apart(source) if Apart(source) in self.troubles else None

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
        return replace(self, troubles={**self.troubles, group: trouble})

    def passed(self, group: Group) -> Groups:
        """Return the groups after a job of one that went well. Who is apart stays so until it has `joined`."""
        return self if group not in self.troubles else replace(self, troubles={**self.troubles, group: _NONE})

    def fallen_behind(self, outputs: Collection[str]) -> Groups:
        """Return the groups with these outputs among the late ones. None of them is in a job under way."""
        return self if self.late.issuperset(outputs) else replace(self, late=self.late.union(outputs))

    def joined(
        self,
        uppers: Mapping[str, int],
        readers: Mapping[str, str],
        *,
        busy: Collection[Group],
        behind: Collection[str] = (),
    ) -> Groups:
        """Return the groups without those who need not be apart any more, and without those who are no longer late.

        uppers: the first epoch that each output lacks that goes on, of those that hold something of its source: the
        table of a quiet one stays far behind, and lacks nothing. readers: the source that each reads. busy: groups
        with a job under way.
        behind: outputs that stay late, however far they are.
        """
        if self.one:
            return self
        stand: dict[Group, int] = {}
        for output, upper in uppers.items():
            group = self.group(output, readers[output])
            stand[group] = min(upper, stand.get(group, upper))
        over = {g for g, t in self.troubles.items() if t == _NONE and g not in busy}
        held = {
            g for g in over if isinstance(g, Apart) and stand.get(g, 0) < stand.get(self._home(g), 0) and g in stand
        }
        troubles = {group: trouble for group, trouble in self.troubles.items() if group not in over - held}
        foremost = stand.get(None, min((u for o, u in uppers.items() if o not in self.late), default=0))
        slower = {o for o in self.late if uppers.get(o, foremost) < foremost}
        after = replace(self, troubles=troubles)
        own = {output: after.group(output, readers[output]) for output in self.late & uppers.keys()}
        tied = {output for output, group in own.items() if group in busy or group in troubles or output in behind}
        return replace(after, late=frozenset(slower | tied))

    def _home(self, group: Apart) -> Group:
        """Return the group that one who is apart goes back to."""
        return Late(group.source, self.pasts.get(group.output)) if group.output in self.late else None


def needs(
    groups: Groups,
    uppers: Mapping[str, int],
    readers: Mapping[str, str],
    *,
    limits: Mapping[str, int],
    sealed: int,
    cursors: Mapping[str, Cursor] = _NOWHERE,
) -> dict[Group, Need]:
    """Return what each group needs next, the common one first; see `next_need`."""
    parts: dict[Group, dict[str, int]] = {None: {}}
    for output, upper in uppers.items():
        parts.setdefault(groups.group(output, readers[output]), {})[output] = upper
    found = {group: next_need(part, limits=limits, sealed=sealed, cursors=cursors) for group, part in parts.items()}
    return {group: need for group, need in found.items() if need is not None}
