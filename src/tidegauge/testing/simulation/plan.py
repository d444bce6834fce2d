"""A plan: all that happens to a flow in one simulated world, decided before it begins.

*Acts* are what others do at an instant: writers append, retention takes records, a broker goes away, a clock is put
back. *Faults* strike a driver where it meets the world: at the nth time that any driver comes to a place of a name.
`kinds` lists all that may go wrong. The seed also decides which actor runs next.

Invariant: a plan is a value, made of the seed and of what the flow looks like. A plan with fewer acts or faults is a
plan, so a failing one can be made smaller by leaving things out.

>>> flow = FlowFacts(("orders",), ("lake",), ("before publish", "after publish"))
>>> plan = planned(7, flow, kinds=("crash",))
>>> plan == planned(7, flow, kinds=("crash",)), {fault.kind for fault in plan.faults} <= {"crash"}
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from tidegauge.testing.simulation.kinds import (
    APART,
    AT_A_PLACE,
    AT_FEEDS,
    AT_FILES,
    AT_LOGS,
    AT_UPSTREAMS,
    BETWEEN_ALSO,
    KINDS,
    LASTING,
    FaultKind,
    checked_kinds,
)

__all__ = [
    "APART",
    "AT_A_PLACE",
    "AT_FILES",
    "AUTO",
    "BETWEEN",
    "BETWEEN_ALSO",
    "KINDS",
    "LASTING",
    "LATE_ACTS",
    "STEERING",
    "Act",
    "Fault",
    "FaultKind",
    "FlowFacts",
    "Plan",
    "acted",
    "checked_kinds",
    "nth_time",
    "planned",
    "struck",
    "written",
]

STEERING: Final = ("put off", "limit", "drop", "add", "anew", "remake")
"""What somebody may decide about outputs."""

LATE_ACTS: Final = ("outputs", "put off", "drop", "add", "anew", "remake")
"""The acts that make outputs late."""

AUTO: Final = -1
"""The rate of late outputs that gives way to the live ones."""
_RATES: Final = (0, 1, 5, 40, AUTO)
"""Rows a second."""

_AT_COMMANDS: Final[tuple[FaultKind, ...]] = ("crash", "error", "lost")
"""The faults that strike where a table is removed or gets another edition."""
_ALSO: Final = 0.6
"""How often a kind of `APART` comes where other kinds do: decisions only where several do."""

_NEW: Final = 0.6
"""How often an output that comes late is a new one: the flow begins without it."""
_WRONG_CLOCKS: Final = (
    *(("clock", "", seconds) for seconds in (-90, -5, -1, 1, 5, 90)),
    *(("drift", "", percent) for percent in (90, 110, 150)),
)
"""What may happen to wall clocks: jumps by some seconds, and rates in percent."""

BETWEEN: Final[Mapping[str, int]] = {"worker step": 100, "work done": 25}
"""Places between two things that a driver does: after each step of its worker, and when something beside the worker
is done and the worker has not heard of it. The numbers are at which count a fault strikes there, on average."""

_TOGETHER: Final[Mapping[FaultKind, int]] = {"history": 3, "decisions": 2}
"""How many acts of a kind come where one comes of another kind: one alone does little."""


class FlowFacts(NamedTuple):
    """What a plan has to know of a flow: its sources, its outputs, the places where its drivers meet the world."""

    sources: tuple[str, ...]
    outputs: tuple[str, ...]
    places: tuple[str, ...]
    tick: float = 1.0
    feeds: tuple[str, ...] = ()
    """The sources that push."""
    logs: tuple[str, ...] = ()
    """The sources that read topics."""
    files: tuple[str, ...] = ()
    """The sources that read files."""
    companied: tuple[str, ...] = ()
    """The outputs that the flow can do without for a while: another one has the same source, which does not push."""
    pausable: tuple[str, ...] = ()
    """The outputs that can wait while others go on."""
    tables: tuple[str, ...] = ()
    """The outputs all of whose rows can be made again."""
    answering: Mapping[FaultKind, tuple[str, ...]] = MappingProxyType({})
    """The places of the kinds that cannot strike everywhere: where somebody answers, or a file is staged."""
    gaining: Mapping[str, int] = MappingProxyType({})
    """The sources that can gain columns, or tables, each with how many of its last ones the flow can do without."""
    listed: tuple[str, ...] = ()
    """The sources that list files, or take loads."""
    altered: tuple[str, ...] = ()
    """The databases whose tables get columns."""
    replicated: tuple[str, ...] = ()
    """The databases whose servers have standbys."""

    def having(self, kind: FaultKind) -> tuple[str, ...]:
        """Return the sources or outputs that can have a kind of fault; one "" for what comes from elsewhere."""
        if kind in AT_UPSTREAMS:
            return self.sources
        if kind in ("outputs", "add"):
            return self.companied
        if kind in ("decisions", "anew"):
            return self.pausable
        if kind == "remake":
            return self.tables
        if kind == "gain":
            return tuple(self.gaining)
        if kind in ("alter", "promote"):
            return self.altered if kind == "alter" else self.replicated
        if kind not in (*AT_FEEDS, *AT_LOGS, *AT_FILES):
            return ("",)
        having = ((AT_FEEDS, self.feeds), (AT_LOGS, self.logs), (AT_FILES, self.files), (("spoil",), self.listed))
        return tuple(name for kinds, names in having if kind in kinds for name in names)

    def where(self, kind: FaultKind) -> tuple[str, ...]:
        """Return the places where a fault of a kind can strike."""
        return self.answering.get(kind, self.places)


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody does at an instant, to a source or to the drivers. number: how much of it, or a choice of its."""

    at: float
    what: str
    on: str = ""
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at:8.2f}  {self.what} {self.on} {self.number}".rstrip()


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens the `nth` time that a driver comes to a place. seconds: how long it lasts."""

    kind: FaultKind
    place: str
    nth: int
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.kind}{lasting} at '{self.place}', time {self.nth}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that happens until the instant `ends`. After it nothing goes wrong any more.

    calm: whether actors run one after the other, each as far as it can; else the seed decides who is next.
    unit: how many records a job of late outputs takes, so that their past comes in parts; 0 for all there are.
    """

    seed: int
    ends: float
    acts: tuple[Act, ...]
    faults: tuple[Fault, ...]
    calm: bool = False
    unit: int = 0

    @property
    def steered(self) -> bool:
        """Whether anybody decides anything about outputs."""
        return any(act.what in STEERING for act in self.acts)

    def with_acts(self, acts: Sequence[Act]) -> Plan:
        """Return the plan with other acts."""
        return replace(self, acts=tuple(acts))

    def with_faults(self, faults: Sequence[Fault]) -> Plan:
        """Return the plan with other faults."""
        return replace(self, faults=tuple(faults))


def planned(seed: int, flow: FlowFacts, *, kinds: Sequence[FaultKind] = KINDS, epochs: int = 30) -> Plan:
    """Return the plan of a seed: how often things go wrong is drawn with it, from never to all the time.

    kinds: what may go wrong. epochs: for how many ticks of the flow writers write.
    """
    random = Random(f"tidegauge {seed}")  # noqa: S311 - nothing is secret here
    ends = epochs * flow.tick
    acts = _until_quiet(seed, flow, _writing(random, flow, ends), ends)
    possible: list[FaultKind] = [kind for kind in kinds if flow.having(kind)]
    others: list[FaultKind] = [kind for kind in possible if kind not in APART]
    chosen = _chosen(random, others)
    faults: list[Fault] = []
    for kind in chosen:
        rate = random.choice((1, 1, 2, 3, 8))
        for _ in range(rate * _TOGETHER.get(kind, 1)):
            if kind in AT_A_PLACE:
                faults.append(struck(random, kind, flow))
            else:
                acts.append(acted(random, kind, flow, ends))
    for kind in APART:
        if kind in possible:
            more = _apart(seed, kind, flow, ends, others=len(chosen), alone=not others)
            acts += more
            faults += _at_commands(seed, kind, more, chosen)
    unit = _unit(seed) if any(act.what in LATE_ACTS for act in acts) else 0
    return Plan(seed, ends, tuple(sorted(acts, key=lambda act: act.at)), tuple(faults), unit=unit)


def _apart(seed: int, kind: FaultKind, flow: FlowFacts, ends: float, *, others: int, alone: bool) -> list[Act]:
    """Return the acts of a kind that is drawn for itself. others: how many kinds there are besides it."""
    random = Random(f"{kind} {seed}")  # noqa: S311 - nothing is secret here
    beside = others >= (2 if kind == "decisions" else 1)
    if not (_chosen(random, [kind]) if alone else beside and random.random() < _ALSO):
        return []
    rate = random.choice((1, 1, 2, 3, 8))
    return [acted(random, kind, flow, ends) for _ in range(rate * _TOGETHER.get(kind, 1))]


def _at_commands(seed: int, kind: FaultKind, acts: Sequence[Act], chosen: Collection[FaultKind]) -> Iterator[Fault]:
    """Yield faults that strike where a table is removed, or its rows get another edition: there is little of it."""
    random = Random(f"{kind} at {seed}")  # noqa: S311 - nothing is secret here
    for act in acts if kind in ("anew", "remake") else ():
        what: FaultKind = random.choice(_AT_COMMANDS)
        place = random.choice(("remove", "removed") if kind == "anew" else ("relabel", "relabelled"))
        if what in chosen:
            yield Fault(what, f"{act.on}: {place}", 1)


def _unit(seed: int) -> int:
    return Random(f"unit {seed}").choice((2, 5, 5, 20, 0))  # noqa: S311 - nothing is secret here


def _chosen(random: Random, kinds: Sequence[FaultKind]) -> list[FaultKind]:
    """Return what goes wrong in this life: nothing, one kind alone, some, or all."""
    if not kinds:
        return []
    match random.randrange(8):
        case 0:
            return []
        case 1 | 2 | 3:
            return [random.choice(kinds)]
        case 7:
            return [*kinds]
        case _:
            return [kind for kind in kinds if random.random() < 0.4]


def _writing(random: Random, flow: FlowFacts, ends: float) -> list[Act]:
    """Return what writers do: records in bursts, now and then a transaction, more partitions, compaction."""
    acts: list[Act] = []
    for source in flow.sources:
        every = flow.tick * random.choice((0.4, 0.8, 0.8, 3.0))
        at = random.random() * flow.tick
        rare = random.random() < 0.5
        while at < ends:
            acts.append(written(random, source, at, rare=rare))
            at += every * random.uniform(0.2, 1.8)
    return acts


def _until_quiet(seed: int, flow: FlowFacts, acts: Sequence[Act], ends: float) -> list[Act]:
    """Return what writers do if some have nothing more before long, so that their tables are behind for good."""
    random = Random(f"quiet {seed}")  # noqa: S311 - nothing is secret here
    quiet = {source: ends * random.choice((1.0, 1.0, 1.0, 0.3)) for source in flow.sources}
    return [act for act in acts if act.at < quiet[act.on]]


def written(random: Random, source: str, at: float, *, rare: bool) -> Act:
    """Return what a writer does at an instant. rare: whether it may be anything but an append."""
    what = random.choices(("append", "transact", "compact", "grow"), (20, 3, 1, 1) if rare else (20, 0, 0, 0))[0]
    return Act(round(at, 3), what, source, random.randrange(1, 6))


def struck(random: Random, kind: FaultKind, flow: FlowFacts) -> Fault:
    """Return a fault of a kind that strikes a driver at a place."""
    place = random.choice(flow.where(kind))
    if kind in BETWEEN_ALSO and random.random() < 0.1:
        place = random.choice([*BETWEEN])
    nth = nth_time(place, random.random())
    seconds = {each: random.choice(lasting) for each, lasting in LASTING.items()}  # all, for the seed's sake
    return Fault(kind, place, nth, seconds.get(kind, 0.0))


def nth_time(place: str, chance: float) -> int:
    """Return at which count a fault strikes at a place, for a number in `[0, 1)`: about the 5th on average, or later.

    >>> nth_time("before publish", 0.0), nth_time("before publish", 0.5), nth_time("worker step", 0.5)
    (1, 4, 70)
    """
    return 1 + int(-BETWEEN.get(place, 5) * math.log(1.0 - chance))


def acted(random: Random, kind: FaultKind, flow: FlowFacts, ends: float) -> Act:
    """Return an act of a kind that strikes the world at an instant."""
    at = round(random.random() * ends, 3)
    on = random.choice(flow.having(kind))
    if kind in ("outputs", "add") and random.random() < _NEW:
        at = 0.0
    if kind == "clock":
        return Act(at, *random.choice(_WRONG_CLOCKS))
    if kind == "history":
        return Act(at, random.choice(("hold", "let go")), "", random.choice((1, 2, 5, 10)))
    if kind == "decisions":
        what = random.choice(("put off", "put off", "limit", "drop"))
        return Act(at, what, "", random.choice(_RATES)) if what == "limit" else Act(at, what, on, _number(random))
    return Act(at, kind, on, _number(random))


def _number(random: Random) -> int:
    return random.choice((1, 2, 5, 10, 40))
