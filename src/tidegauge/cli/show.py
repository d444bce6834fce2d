"""Reports as tables for people and as JSON for programs. Values only go in, renderables and plain data come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegauge.errors.base import TidegaugeError
from tidegauge.pipeline.inspect import EpochReport, FlowReport
from tidegauge.remap.store import EpochRecord

__all__ = [
    "amount",
    "epochs_json",
    "epochs_view",
    "error_json",
    "error_text",
    "explain_json",
    "explain_view",
    "span",
    "state_text",
    "status_json",
    "status_view",
]

COLOURS = {
    "running": "green",
    "live": "green",
    "sealed": "blue",
    "starting": "yellow",
    "planned": "yellow",
    "catching_up": "yellow",
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


def state_text(state: str) -> Text:
    """Return a state in its colour."""
    return Text(state.replace("_", " "), style=COLOURS.get(state, ""))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column in ("source", "output", "state") else "right")
    return table


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds")


def _clock(time: datetime | None) -> str:
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


def _errors(found: Sequence[TidegaugeError | None]) -> list[RenderableType]:
    distinct = {str(error): error for error in found if error is not None}
    return [Group(Text(), error_text(error)) for error in distinct.values()]


def status_view(report: FlowReport) -> RenderableType:
    """Return a flow's report as tables."""
    running = f"running: {report.running}" if report.running else "not running"
    head = Text.assemble(
        (report.name, "bold"),
        f"  {running}\n{report.published} of {report.upper} epochs published",
        f", the newest minted {_clock(report.minted_at)}\nstore {report.store}\n",
    )
    sources = _table("source", "state", "partitions", "published", "upstream", "lag")
    for source in report.sources:
        sources.add_row(
            source.name,
            state_text(source.state),
            f"{source.partitions:,}",
            amount(source.published, source.unit),
            amount(source.end, source.unit),
            amount(source.lag, source.unit),
        )
    outputs = _table("output", "state", "source", "epochs", "lag", "rows", "size", "files")
    for output in report.outputs:
        outputs.add_row(
            output.name,
            state_text(output.state),
            output.source,
            f"{output.upper:,}",
            amount(output.lag, "epochs"),
            f"{output.rows:,}",
            amount(output.bytes, "bytes"),
            f"{output.files:,}",
        )
    notes = [Text(f"{source.name}: {source.note}", style="yellow") for source in report.sources if source.note]
    errors = _errors([*(s.error for s in report.sources), *(o.error for o in report.outputs)])
    return Group(head, sources, *notes, Text(), outputs, *errors)


def status_json(report: FlowReport) -> dict[str, Any]:
    """Return a flow's report as data."""
    return {
        "flow": report.name,
        "store": report.store,
        "running": report.running or None,
        "upper": report.upper,
        "published": report.published,
        "minted_at": _time(report.minted_at),
        "sources": [
            {
                "name": s.name,
                "state": s.state,
                "unit": s.unit,
                "partitions": s.partitions,
                "bound": s.bound,
                "published": s.published,
                "end": s.end,
                "lag": s.lag,
                "note": s.note,
                "error": None if s.error is None else error_json(s.error),
            }
            for s in report.sources
        ],
        "outputs": [
            {
                "name": o.name,
                "source": o.source,
                "state": o.state,
                "upper": o.upper,
                "lag": o.lag,
                "rows": o.rows,
                "bytes": o.bytes,
                "files": o.files,
                "error": None if o.error is None else error_json(o.error),
            }
            for o in report.outputs
        ],
    }


def epochs_view(found: Sequence[tuple[EpochRecord, Mapping[str, int]]], units: Mapping[str, str]) -> RenderableType:
    """Return a part of the timeline as a table, one column a source."""
    table = _table("epoch", "minted (UTC)", "published (UTC)", *units)
    for record, sizes in found:
        bound = [amount(sizes[name], unit) if name in sizes else "" for name, unit in units.items()]
        table.add_row(str(record.epoch), _clock(record.minted_at), _clock(record.published_at), *bound)
    return table


def epochs_json(found: Sequence[tuple[EpochRecord, Mapping[str, int]]]) -> list[dict[str, Any]]:
    """Return a part of the timeline as data."""
    return [
        {
            "epoch": record.epoch,
            "minted_at": _time(record.minted_at),
            "published_at": _time(record.published_at),
            "bound": dict(sizes),
        }
        for record, sizes in found
    ]


def explain_view(report: EpochReport) -> RenderableType:
    """Return an epoch's report as tables."""
    head = Text.assemble(
        (f"epoch {report.epoch}", "bold"),
        f"  minted {_clock(report.minted_at)}, published {_clock(report.published_at)} (UTC)\n",
    )
    slices = _table("source", "from", "to", "size", "partition")
    slices.columns[-1].justify = "left"
    for piece in report.slices:
        slices.add_row(
            piece.source,
            f"{piece.lower:,}",
            f"{piece.upper:,}",
            amount(piece.upper - piece.lower, piece.unit),
            Text(str(piece.detail.get("path", piece.partition))),
        )
    outputs = _table("output", "rows")
    for name, rows in report.rows.items():
        outputs.add_row(name, f"{rows:,}")
    return Group(head, slices, Text(), outputs)


def explain_json(report: EpochReport) -> dict[str, Any]:
    """Return an epoch's report as data."""
    return {
        "epoch": report.epoch,
        "minted_at": _time(report.minted_at),
        "published_at": _time(report.published_at),
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
    }
