"""Reports as tables for people and as JSON for programs. Values only go in, renderables and plain data come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegauge.errors.base import TidegaugeError

if TYPE_CHECKING:
    from tidegauge.flow.board import OutputStatus
    from tidegauge.looking.reports import EpochReport, OutputReport
    from tidegauge.maintenance.compact import Compacted
    from tidegauge.maintenance.resume import Resumed, Skipped
    from tidegauge.remap.store import EpochRecord, Gap

__all__ = [
    "amount",
    "clock",
    "compacted_json",
    "compacted_view",
    "epochs_json",
    "epochs_view",
    "error_json",
    "error_text",
    "errors_view",
    "explain_json",
    "explain_view",
    "grid",
    "iso",
    "phase_text",
    "resumed_json",
    "resumed_view",
    "skipped_json",
    "skipped_view",
    "span",
    "state_text",
]

COLOURS = {
    "running": "green",
    "live": "green",
    "sealed": "blue",
    "idle": "blue",
    "starting": "yellow",
    "planned": "yellow",
    "backfilling": "yellow",
    "catching_up": "yellow",
    "paused": "magenta",
    "stalled": "red",
    "failed": "bold red",
}


def amount(number: float, unit: str) -> str:
    """Return a number with its unit, readable.

    >>> amount(1234567, "bytes"), amount(1234567, "records")
    ('1.2 MB', '1,234,567 records')
    """
    if unit != "bytes":
        return f"{number:,.0f} {unit}"
    for name in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {name}" if name == "bytes" else f"{number:.1f} {name}"
        number /= 1000
    return f"{number:.1f} TB"


def span(seconds: float | None) -> str:
    """Return a duration, readable.

    >>> span(0.2), span(75), span(None)
    ('0 s', '1 min 15 s', '-')
    """
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def state_text(state: str, more: str = "") -> Text:
    """Return a state in its colour, with more about it."""
    return Text(f"{state.replace('_', ' ')} {more}".rstrip(), style=COLOURS.get(state, ""))


def phase_text(output: OutputReport | OutputStatus) -> Text:
    """Return an output's state, and how far it is in it."""
    if output.state == "backfilling" and output.filled is not None:
        return state_text(output.state, f"{output.filled} (replacing)" if output.replacing else str(output.filled))
    if output.state == "catching_up":
        return state_text(output.state, f"{output.lag:,} epochs" if output.lag != 1 else "1 epoch")
    reasons = sorted(str(getattr(pause, "reason", pause)) for pause in output.paused)
    return state_text(output.state, f"({', '.join(reasons)})" if output.state == "paused" else "")


def grid(*columns: str) -> Table:
    """Return an empty table with these columns."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column in ("source", "output", "state") else "right")
    return table


def iso(time: datetime | None) -> str | None:
    """Return a time as JSON has it."""
    return None if time is None else time.isoformat(timespec="milliseconds")


def clock(time: datetime | None) -> str:
    """Return a time as people read it."""
    return "-" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")


def error_text(error: TidegaugeError) -> Text:
    """Return an error as people should see it."""
    first, _, rest = str(error).partition("\n")
    return Text.assemble((first, "bold red"), "\n", rest)


def error_json(error: TidegaugeError) -> dict[str, Any]:
    """Return an error as data."""
    return {
        "code": error.code,
        "summary": error.summary,
        "cause": error.likely_cause,
        "remedy": error.next_step,
        "evidence": dict(error.evidence),
    }


def errors_view(found: Sequence[TidegaugeError | None]) -> list[RenderableType]:
    """Return each of the errors once, below one another; None is no error."""
    distinct = {str(error): error for error in found if error is not None}
    return [Group(Text(), error_text(error)) for error in distinct.values()]


def compacted_view(done: Compacted) -> RenderableType:
    """Return what a compaction came to as lines."""
    gone = f"epochs before {done.since} can no longer be told apart" if done.since else "no epoch was let go"
    stopped = [f"it was to go to epoch {done.wanted} and stopped before: {done.kept}"] if done.kept else []
    return Text("\n".join([f"{done.flow}: {gone}", *stopped]))


def compacted_json(done: Compacted) -> dict[str, Any]:
    """Return what a compaction came to as data."""
    return {"flow": done.flow, "since": done.since, "wanted": done.wanted, "kept": done.kept or None}


def epochs_view(found: Sequence[tuple[EpochRecord, Mapping[str, int]]], units: Mapping[str, str]) -> RenderableType:
    """Return a part of the timeline as a table, one column a source."""
    table = grid("epoch", "minted (UTC)", "published (UTC)", *units)
    for record, sizes in found:
        bound = [amount(sizes[name], unit) if name in sizes else "" for name, unit in units.items()]
        table.add_row(str(record.epoch), clock(record.minted_at), clock(record.published_at), *bound)
    return table


def epochs_json(found: Sequence[tuple[EpochRecord, Mapping[str, int]]]) -> list[dict[str, Any]]:
    """Return a part of the timeline as data."""
    return [
        {
            "epoch": record.epoch,
            "minted_at": iso(record.minted_at),
            "published_at": iso(record.published_at),
            "bound": dict(sizes),
        }
        for record, sizes in found
    ]


def explain_view(report: EpochReport) -> RenderableType:
    """Return an epoch's report as tables."""
    head = Text.assemble(
        (f"epoch {report.epoch}", "bold"),
        f"  minted {clock(report.minted_at)}, published {clock(report.published_at)} (UTC)\n",
    )
    slices = grid("source", "from", "to", "size", "partition")
    slices.columns[-1].justify = "left"
    for piece in report.slices:
        slices.add_row(
            piece.source,
            f"{piece.lower:,}",
            f"{piece.upper:,}",
            amount(piece.upper - piece.lower, piece.unit),
            Text(str(piece.detail.get("path", piece.partition))),
        )
    outputs = grid("output", "rows")
    for name, rows in report.rows.items():
        outputs.add_row(name, f"{rows:,}")
    return Group(head, slices, Text(), outputs, *_lost(report.gaps))


def _lost(gaps: Sequence[Gap]) -> list[RenderableType]:
    """Return ranges that are lost as a table, nothing where there are none."""
    if not gaps:
        return []
    table = grid("source", "from", "to", "partition", "lost")
    for column in table.columns[-2:]:
        column.justify = "left"
    for gap in gaps:
        table.add_row(gap.source, f"{gap.lower:,}", f"{gap.upper:,}", Text(gap.partition), Text(gap.reason))
    return [Text(), table]


def _lost_json(gaps: Sequence[Gap]) -> list[dict[str, Any]]:
    return [
        {
            "source": gap.source,
            "epoch": gap.epoch,
            "partition": gap.partition,
            "lower": gap.lower,
            "upper": gap.upper,
            "at": iso(gap.at),
            "code": gap.code,
            "reason": gap.reason,
        }
        for gap in gaps
    ]


def resumed_view(done: Resumed, unit: str) -> RenderableType:
    """Return what a source goes on with, for people."""
    life = f"incarnation {done.incarnation}, from epoch {done.began_at} on" if done.incarnation else "as before"
    text = f"{done.source} goes on with the next run: {life}"
    lost = sum(gap.size for gap in done.gaps)
    return Group(Text(f"{text}; {amount(lost, unit)} are lost" if lost else text), *_lost(done.gaps))


def resumed_json(done: Resumed) -> dict[str, Any]:
    """Return the same as data."""
    return {
        "source": done.source,
        "incarnation": done.incarnation,
        "began_at": done.began_at,
        "gaps": _lost_json(done.gaps),
    }


def skipped_view(done: Skipped, unit: str) -> RenderableType:
    """Return the skipped ranges, for people."""
    size = sum(gap.size for gap in done.gaps)
    said = (
        f"{amount(size, unit)} of {done.partition} are passed over" if size else "all of that was passed over before"
    )
    after = "; it goes on with the next run" if done.lifted else ""
    return Group(Text(f"{done.source}: {said}{after}"), *_lost(done.gaps))


def skipped_json(done: Skipped) -> dict[str, Any]:
    """Return the same as data."""
    return {
        "source": done.source,
        "partition": done.partition,
        "lifted": done.lifted,
        "gaps": _lost_json(done.gaps),
    }


def explain_json(report: EpochReport) -> dict[str, Any]:
    """Return an epoch's report as data."""
    return {
        "epoch": report.epoch,
        "minted_at": iso(report.minted_at),
        "published_at": iso(report.published_at),
        "slices": [
            {
                "source": s.source,
                "partition": s.partition,
                "lower": s.lower,
                "upper": s.upper,
                "unit": s.unit,
                "detail": dict(s.detail),
            }
            for s in report.slices
        ],
        "rows": dict(report.rows),
        "gaps": _lost_json(report.gaps),
    }
