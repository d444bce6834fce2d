"""What a notebook shows of a flow: tables of text.

Invariant: whatever a name, a path or an error of somebody else holds is text in it, and never markup.

>>> table("a <b>", ["n"], [[1], ["<script>"]])
'<table><caption>a &lt;b&gt;</caption><tr><th>n</th></tr><tr><td>1</td></tr><tr><td>&lt;script&gt;</td></tr></table>'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from tidegauge.pipeline.spec import FlowSpec

if TYPE_CHECKING:
    from tidegauge.pipeline.inspect import EpochReport, FlowReport
    from tidegauge.remap.store import EpochRecord

__all__ = ["of_epoch", "of_epochs", "of_flow", "of_status", "table"]


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of text."""
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def _row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(_text(cell))}</{kind}>' for cell in cells)}</tr>"


def _text(cell: object) -> str:
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ", timespec="seconds")
    if isinstance(cell, int):
        return f"{cell:,}"
    return "" if cell is None else str(cell)


def _said(detail: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in detail.items())


def of_flow(flow: FlowSpec) -> str:
    """Return what a flow was told: each output with its source, its steps and its sink."""
    rows = []
    for plan in flow.outputs.values():
        said: Mapping[str, Any] = plan.sink.describe()
        steps = " | ".join(type(step).__name__.lower() for step in plan.steps)
        source = plan.source if plan.channel == "rows" else f"{plan.source}.errors"
        rows.append((plan.name, source, steps, type(plan.sink).__name__, said.get("path", said.get("topic", ""))))
    return table(f"flow {flow.name}", ["output", "source", "steps", "sink", "where"], rows)


def of_status(report: FlowReport) -> str:
    """Return where a flow stands."""
    title = f"flow {report.name}: {report.published:,} of {report.upper:,} epochs published; "
    title += f"run by {report.running}" if report.running else "not running"
    sources = table(
        title,
        ["source", "state", "published", "upstream", "lag", "unit", ""],
        [(s.name, s.state, s.published, s.end, s.lag, s.unit, s.error or s.note) for s in report.sources],
    )
    outputs = table(
        "",
        ["output", "source", "state", "epochs", "lag", "rows", "files", ""],
        [(o.name, o.source, o.state, o.upper, o.lag, o.rows, o.files, o.error) for o in report.outputs],
    )
    return sources + outputs


def of_epochs(epochs: Iterable[tuple[EpochRecord, Mapping[str, int]]]) -> str:
    """Return a timeline: each epoch with how much of each source it binds."""
    rows = [
        (record.epoch, record.minted_at, record.published_at, ", ".join(f"{s} {n:,}" for s, n in sizes.items()))
        for record, sizes in epochs
    ]
    return table("epochs", ["epoch", "minted", "published", "binds"], rows)


def of_epoch(report: EpochReport) -> str:
    """Return the content of an epoch and where it went."""
    published = _text(report.published_at) or "not yet"
    slices = table(
        f"epoch {report.epoch:,}, minted {_text(report.minted_at)}, published {published}",
        ["source", "partition", "from", "to", "unit", ""],
        [(s.source, s.partition, s.lower, s.upper, s.unit, _said(s.detail)) for s in report.slices],
    )
    return slices + table("", ["output", "rows"], list(report.rows.items()))
