"""Frontiers of partitions: any, those of a kind of clock, and sequences of them that only go on.

Invariants. `checked(clock, frontier)` accepts every frontier of `clock_frontiers(clock)`. In a sequence of
`advancing_frontiers`, each frontier follows the one before, and only the last one may be sealed.

>>> from hypothesis import find, settings
>>> steady = settings(derandomize=True)  # the same examples each time
>>> find(advancing_frontiers(), lambda walk: walk[-1].sealed and "p1" in walk[-1], settings=steady)
[Frontier({'p1': 1}, sealed=True)]
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Final

from hypothesis import strategies as st

from tidegauge.errors.testing import NoStrategyKnown
from tidegauge.remap.fromtime import POLLS, WAL, FromTime, LsnTime, Partitions, Sequence
from tidegauge.remap.fromtime.gtid import GtidTime
from tidegauge.remap.fromtime.mariadb import MariaDbTime
from tidegauge.remap.fromtime.protocol import LARGEST, LONGEST_NAME
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.testing.strategies.arguments import sizes, strategies

__all__ = [
    "FEW",
    "STEPS",
    "advancing_frontiers",
    "clock_frontiers",
    "frontiers",
    "partition_names",
    "positions",
]

FEW: Final = st.sampled_from(["p0", "p1", "p2", "p3"])
"""Partitions that are few, so that two frontiers often name the same."""
STEPS: Final = st.sampled_from([1, 2, 5])
"""How far a partition goes at once."""

_AWKWARD: Final = ["a b", 'say "hi"', "x@1", "x,y", "p'2", "Tür", "", "x" * LONGEST_NAME]
_LETTERS: Final = st.characters(exclude_categories=["Cs"], exclude_characters="\0")


def partition_names() -> st.SearchStrategy[str]:
    """Names of partitions: plain ones, those that need quotes in a notation or in SQL, the longest, and Unicode."""
    return FEW | st.sampled_from(_AWKWARD) | st.text(_LETTERS, max_size=20)


def positions() -> st.SearchStrategy[int]:
    """Positions: small ones, those around 2**53, which a float would round, and any up to the largest, 2**63 - 1."""
    return st.integers(0, 9) | st.integers(2**53 - 1, 2**53 + 2) | st.integers(0, LARGEST)


def frontiers(
    *,
    partitions: st.SearchStrategy[str] = FEW,
    positions: st.SearchStrategy[int] = st.integers(0, 9),  # noqa: B008 - a strategy is a value
    max_size: int = 4,
    sealed: bool = True,
) -> st.SearchStrategy[Frontier]:
    """Frontiers of a source. max_size: the largest number of partitions. sealed: whether some have ended."""
    sizes("frontiers", 0, max_size)
    strategies("frontiers", partitions=partitions, positions=positions)
    return _ended(st.dictionaries(partitions, positions, max_size=max_size), sealed=sealed)


def clock_frontiers(clock: FromTime, *, sealed: bool = True) -> st.SearchStrategy[Frontier]:
    """Frontiers of one of the kinds of clocks in `remap.fromtime`, up to the largest positions.

    sealed: whether some have ended. Raises `NoStrategyKnown` for a clock of your own.
    """
    named: st.SearchStrategy[Any]
    match clock:
        case Partitions(integers=True):
            named = st.dictionaries(_integers().map(str), positions(), max_size=4)
        case Partitions():
            named = st.dictionaries(partition_names(), positions(), max_size=4)
        case LsnTime():
            named = st.fixed_dictionaries({WAL: positions()})
        case Sequence():
            named = st.fixed_dictionaries({POLLS: positions()})
        case GtidTime():
            servers = st.integers(0, 5).map(lambda n: f"00000000-0000-0000-0000-{n:012}") | st.uuids().map(str)
            named = st.dictionaries(servers, positions().map(lambda n: 0 if n == 1 else n), max_size=4)
        case MariaDbTime():
            domains = (st.integers(0, 5) | st.integers(0, 2**32 - 1)).map(str)
            named = st.dictionaries(domains, positions().map(lambda n: 0 if n == 1 else n), max_size=4)
        case _:
            raise NoStrategyKnown(
                strategy="clock_frontiers",
                thing=f"the clock {clock!r}",
                instead="draw its partitions and positions yourself, and pass them to frontiers(...)",
            )
    return _ended(named, sealed=sealed)


def advancing_frontiers(
    *,
    partitions: st.SearchStrategy[str] = FEW,
    steps: st.SearchStrategy[int] = STEPS,
    min_size: int = 1,
    max_size: int = 8,
    sealed: bool = True,
) -> st.SearchStrategy[list[Frontier]]:
    """Sequences of frontiers that only go on: partitions appear, move by a step or stay, and may end with the last.

    sealed: whether some have ended. A frontier that is equal to the one before is one of an idle source.
    """
    sizes("advancing_frontiers", min_size, max_size)
    strategies("advancing_frontiers", partitions=partitions, steps=steps)
    moves = st.lists(st.lists(st.tuples(partitions, steps), max_size=4), min_size=min_size, max_size=max_size)
    return _walks(moves, st.booleans() if sealed else st.just(False))  # noqa: FBT003 - what it draws


@st.composite
def _walks(
    draw: st.DrawFn, moves: st.SearchStrategy[list[list[tuple[str, int]]]], ends: st.SearchStrategy[bool]
) -> list[Frontier]:
    walk = list(accumulate(draw(moves), _moved, initial=ORIGIN))[1:]
    ended = draw(ends)
    if walk and ended:
        walk[-1] = walk[-1].seal()
    return walk


def _moved(frontier: Frontier, moves: list[tuple[str, int]]) -> Frontier:
    at = dict(frontier)
    for partition, step in moves:
        at[partition] = at.get(partition, 0) + step
    return Frontier(at)


def _ended(mappings: st.SearchStrategy[dict[str, int]], *, sealed: bool) -> st.SearchStrategy[Frontier]:
    return st.builds(Frontier, mappings, sealed=st.booleans()) if sealed else mappings.map(Frontier)


def _integers() -> st.SearchStrategy[int]:
    return st.integers(-3, 12) | st.integers(-LARGEST - 1, LARGEST)
