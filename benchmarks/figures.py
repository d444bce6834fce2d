"""What a benchmark returns: samples of ours, samples of a peer, and how they compare.

A repetition measures ours and then the peer; the ratio is taken within each repetition, so that a slow minute of the
machine is in both. A figure shows the median over its repetitions, with the least and the greatest.

>>> figure = Figure("an epoch", "ms", ours=(30.0, 20.0, 40.0), peer=(60.0, 50.0, 50.0), goal=Goal("ratio", "<=", 0.7))
>>> figure.ratios
(0.5, 0.4, 0.8)
>>> figure.verdict
'met'
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

__all__ = ["Figure", "Goal", "markdown", "shown", "spread"]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the median of ours, or on the median of the ratio to the peer."""

    of: Literal["ours", "ratio"]
    relation: Literal["<=", ">="]
    bound: float

    def __str__(self) -> str:
        return f"{self.relation} {shown(self.bound)}"

    def met(self, value: float) -> bool:
        return value <= self.bound if self.relation == "<=" else value >= self.bound


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `ours` and `peer` have one sample a repetition, in `unit`; `note` says what else."""

    what: str
    unit: str
    ours: tuple[float, ...]
    peer: tuple[float, ...] = ()
    peer_name: str = ""
    goal: Goal | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours over the peer, repetition by repetition."""
        return tuple(a / b for a, b in zip(self.ours, self.peer, strict=False))

    @property
    def verdict(self) -> Literal["", "met", "missed"]:
        """Whether the goal is met by the median."""
        if self.goal is None:
            return ""
        samples = self.ratios if self.goal.of == "ratio" else self.ours
        return "met" if self.goal.met(statistics.median(samples)) else "missed"

    def encode(self) -> dict[str, Any]:
        """Return the figure as JSON data, with its medians and ratios worked out."""
        worked = {"median": statistics.median(self.ours), "ratios": list(self.ratios), "verdict": self.verdict}
        if self.peer:
            worked["peer_median"] = statistics.median(self.peer)
        return {**asdict(self), **worked}

    @staticmethod
    def decode(data: dict[str, Any]) -> Figure:
        """Return the figure that `encode` described."""
        given = {field.name: data[field.name] for field in fields(Figure)}
        goal = None if given["goal"] is None else Goal(**given["goal"])
        return Figure(**{**given, "ours": tuple(given["ours"]), "peer": tuple(given["peer"]), "goal": goal})


def shown(value: float) -> str:
    """Return a number in three significant digits, in full above a thousand.

    >>> [shown(v) for v in (0.01234, 5.0, 123.4, 650123.0)]
    ['0.0123', '5.00', '123', '650,123']
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    if 0 < abs(value) < 0.1:
        return f"{value:.3g}"
    return f"{value:.{digits}f}"


def spread(samples: Sequence[float]) -> str:
    """Return the median with the least and the greatest.

    >>> spread([3.0, 1.0, 2.0]), spread([4.0])
    ('2.00 (1.00 to 3.00)', '4.00')
    """
    if not samples:
        return ""
    median = shown(statistics.median(samples))
    return median if len(samples) == 1 else f"{median} ({shown(min(samples))} to {shown(max(samples))})"


def markdown(figures: Iterable[Figure]) -> str:
    """Return the figures as one Markdown table with aligned columns."""
    head = ("what", "unit", "Tidegauge", "peer", "ratio", "goal", "")
    rows = [
        (
            figure.what + (f" ({figure.note})" if figure.note else ""),
            figure.unit,
            spread(figure.ours),
            f"{figure.peer_name}: {spread(figure.peer)}" if figure.peer else "",
            spread(figure.ratios),
            "" if figure.goal is None else ("ratio " if figure.goal.of == "ratio" else "") + str(figure.goal),
            figure.verdict,
        )
        for figure in figures
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)])
