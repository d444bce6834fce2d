"""A run's end: whether anything more comes, and why a run is over, by what its board says.

Invariant: "caught up" and "sealed" are for published epochs alone, and "stopped" only when no job is
under way whose epochs are in some tables alone.

>>> from tidegauge.flow.ending import Course
>>> Course(until="caught-up", stopping=False, spent=False, away=False)
Course(until='caught-up', stopping=False, spent=False, away=False)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegauge.flow.board import Board

__all__ = ["Course", "Outcome", "Until", "Why", "nothing_more", "why_over"]

Until: TypeAlias = Literal["caught-up"] | None
"""Where a run is to end by itself."""

Why: TypeAlias = Literal["caught up", "sealed", "stopped"]


@dataclass(frozen=True, slots=True)
class Course:
    """How a run goes at present.

    until: where it is to end by itself. stopping: whether it was told to stop. spent: whether a run that was told to
    stop can do nothing more. away: whether a table is away, which is waited for.
    """

    until: Until
    stopping: bool
    spent: bool
    away: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a run stopped: every epoch before `published` is in every live output. `why` is for people."""

    flow: str
    published: int
    why: Why


def nothing_more(board: Board, *, required: Collection[str]) -> bool:
    """Whether nothing more comes for any output that goes on. required: sources without which the flow is over."""
    sources = board.sources
    return (
        all(one.state == "failed" for one in board.outputs.values())
        or all(one.state in ("sealed", "failed") for one in sources.values())
        or any(sources[name].state == "failed" for name in required)
    )


def why_over(board: Board, course: Course, *, over: bool) -> Why | None:
    """Return why a run is over, or None while it is not. over: whether nothing more comes."""
    going = [output for output in board.outputs.values() if output.state != "failed"]
    outputs = [output for output in going if output.state != "paused"]
    held = min([board.upper, *(output.upper for output in outputs)])
    if course.stopping:
        # What cannot be committed at present may not be for long; it is staged once more by the next run.
        well = [output for output in outputs if output.state != "stalled"]
        at_rest = not board.jobs and all(output.upper >= board.expected[output.name] for output in well)
        # Nothing more is published while an output is away, or has failed and is still to get earlier epochs.
        told = board.published >= held or course.away or course.spent
        return "stopped" if at_rest and told else None
    if going and not outputs and course.until:
        return "caught up"  # as far as those get who are not paused: nobody
    held = min(held, board.published)  # an output that was added late may hold less than is published
    if over and held >= board.upper and not board.jobs:
        return "sealed"
    return "caught up" if course.until and board.reached is not None and held >= board.reached else None
