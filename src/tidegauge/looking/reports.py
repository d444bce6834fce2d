"""What you get by looking at a flow: where it stands, its timeline, an epoch's content. Notebooks show it as tables.

Invariants. States and words are those of the running flow. Whatever a name, a path or an error of somebody else holds
is text in a notebook's table, and never markup.

>>> table("a <b>", ["n"], [[1], ["<script>"]])
'<table><caption>a &lt;b&gt;</caption><tr><th>n</th></tr><tr><td>1</td></tr><tr><td>&lt;script&gt;</td></tr></table>'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

from tidegauge.backfill.progress import Filled
from tidegauge.errors.base import TidegaugeError
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.binding import Detail
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store import EpochRecord, Gap, HoldRecord, Pause

if TYPE_CHECKING:
    from tidegauge.flow.board import OutputCondition, SourceCondition

__all__ = [
    "EpochReport",
    "Epochs",
    "FlowReport",
    "OutputReport",
    "SliceReport",
    "SourceReport",
    "of_flow",
    "table",
    "text",
]


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of text."""
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def _row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(text(cell))}</{kind}>' for cell in cells)}</tr>"


def text(cell: object) -> str:
    """Return what a cell shows."""
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ", timespec="seconds")
    if isinstance(cell, int):
        return f"{cell:,}"
    return "" if cell is None else str(cell)


def of_flow(flow: FlowSpec) -> str:
    """Return what a flow was told: each output with its source, its steps and its sink."""
    rows = []
    for plan in flow.outputs.values():
        steps = " | ".join(type(step).__name__.lower() for step in plan.steps)
        source = plan.source if plan.channel == "rows" else f"{plan.source}.errors"
        rows.append((plan.name, source, steps, type(plan.sink).__name__, plan.sink.identity))
    return table(f"flow {flow.name}", ["output", "source", "steps", "sink", "where"], rows)


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A source: its state, how far it is bound and published, and what upstream holds, in `unit`.

    since: since when its driver waits for it, if that is known. All this is of the incarnation, the present one.
    lost: the ranges that are in no table, or not in all, of this one or earlier ones; `explain` of an epoch shows
    them. held_back: the bytes that upstream keeps for the flow, None where it does not say so; held_back_limit: the
    most that it would keep, None for any number; ending: whether it keeps more, and is about to give it up.
    """

    name: str
    state: SourceCondition
    unit: str
    partitions: int
    bound: int
    published: int
    end: int
    note: str
    error: TidegaugeError | None
    required: bool = False
    incarnation: int = 0
    lost: int = 0
    since: datetime | None = None
    held_back: int | None = None
    held_back_limit: int | None = None
    ending: bool = False

    @property
    def lag(self) -> int:
        """What upstream holds and no table shows, in `unit`."""
        return self.end - self.published


@dataclass(frozen=True, slots=True)
class OutputReport:
    """An output: its state, the first epoch it lacks, how many bound epochs that is behind, what it holds.

    since: from when on its driver waits for it, where that is known. filled: how far the past is staged of one that
    shows nothing yet. replacing: whether its rows are to change places with others. paused: why it is
    paused; upstream keeps what it lacks. waits_for: the outputs that are to be live before it catches up, and are
    not. start: where it begins, None for one that begins with its source. coded_at: the epochs from which on it has
    other code than before.
    """

    name: str
    source: str
    state: OutputCondition
    upper: int
    lag: int
    rows: int
    bytes: int
    files: int
    error: TidegaugeError | None
    since: datetime | None = None
    filled: Filled | None = None
    replacing: bool = False
    paused: tuple[Pause, ...] = ()
    waits_for: tuple[str, ...] = ()
    start: StartRecord | None = None
    coded_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowReport:
    """A flow: `upper` epochs are bound, `published` are published; those before `since` can no longer be told apart.

    holds: who keeps `since` from passing which epoch, the least epoch first. silent: who has not renewed the lease
    for longer than usual and may be alive, for people.
    """

    name: str
    store: str
    running: str
    upper: int
    published: int
    minted_at: datetime | None
    sources: tuple[SourceReport, ...]
    outputs: tuple[OutputReport, ...]
    since: int = 0
    holds: tuple[HoldRecord, ...] = ()
    silent: str = ""

    @property
    def awaited(self) -> tuple[str, ...]:
        """The required sources that cannot say how far they are: until they do, nothing is bound."""
        return tuple(s.name for s in self.sources if s.required and s.state in ("stalled", "failed"))

    def _repr_html_(self) -> str:
        title = f"flow {self.name}: {self.published:,} of {self.upper:,} epochs published; "
        title += f"run by {self.running}" if self.running else "not running"
        sources = table(
            title,
            ["source", "state", "published", "upstream", "lag", "unit", ""],
            [(s.name, s.state, s.published, s.end, s.lag, s.unit, s.error or s.note) for s in self.sources],
        )
        outputs = table(
            "",
            ["output", "source", "state", "epochs", "lag", "rows", "files", ""],
            [(o.name, o.source, o.state, o.upper, o.lag, o.rows, o.files, o.error) for o in self.outputs],
        )
        return sources + outputs


@dataclass(frozen=True, slots=True)
class SliceReport:
    """A range of an epoch: `[lower, upper)` of a partition, with what the source keeps about the partition."""

    source: str
    partition: str
    lower: int
    upper: int
    unit: str
    detail: Detail


@dataclass(frozen=True, slots=True)
class EpochReport:
    """An epoch: when it was minted and published, where its records came from, and how many rows of it went where.

    gaps: what of it is in no table, or not in all, because it is lost.
    """

    epoch: int
    minted_at: datetime
    published_at: datetime | None
    slices: tuple[SliceReport, ...]
    rows: Mapping[str, int]
    gaps: tuple[Gap, ...] = ()

    def _repr_html_(self) -> str:
        published = text(self.published_at) or "not yet"
        slices = table(
            f"epoch {self.epoch:,}, minted {text(self.minted_at)}, published {published}",
            ["source", "partition", "from", "to", "unit", ""],
            [(s.source, s.partition, s.lower, s.upper, s.unit, _said(s.detail)) for s in self.slices],
        )
        return slices + table("", ["output", "rows"], list(self.rows.items()))


class Epochs(list[tuple[EpochRecord, Mapping[str, int]]]):
    """Epochs in order, each with how many positions of each source it binds. A notebook shows them as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (record.epoch, record.minted_at, record.published_at, ", ".join(f"{s} {n:,}" for s, n in sizes.items()))
            for record, sizes in self
        ]
        return table("epochs", ["epoch", "minted", "published", "binds"], rows)


def _said(detail: Detail) -> str:
    return ", ".join(f"{name} {value}" for name, value in detail.items())
