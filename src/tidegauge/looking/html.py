"""What a notebook shows of a flow: tables of text.

Invariant: whatever a name, a path or an error of somebody else holds is text in it, and never markup.

>>> table("a <b>", ["n"], [[1], ["<script>"]])
'<table><caption>a &lt;b&gt;</caption><tr><th>n</th></tr><tr><td>1</td></tr><tr><td>&lt;script&gt;</td></tr></table>'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

from tidegauge.flow.spec import FlowSpec

__all__ = ["of_flow", "table", "text"]


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
