"""Where a flow and its outputs stand, as tables for people and as JSON for programs.

Invariant: values only go in, renderables and plain data come out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegauge.cli.show import amount, clock, error_json, errors_view, grid, iso, phase_text, state_text
from tidegauge.errors.running import TickHeld

if TYPE_CHECKING:
    from tidegauge.looking.reports import FlowReport, OutputReport, SourceReport
    from tidegauge.remap.start import StampRecord, StartRecord

__all__ = ["output_json", "outputs_view", "status_json", "status_view"]

PATIENCE = 30
"""The longest delay between two attempts during a stall; see `sources.sweep.backoff`."""


def status_view(report: FlowReport) -> RenderableType:
    """Return a flow's report as tables."""
    running = f"running: {report.running}" if report.running else "not running"
    if report.silent:
        running += f"\nthe lease is not renewed: {report.silent}; its store may be full, or out of its reach"
    head = Text.assemble(
        (report.name, "bold"),
        f"  {running}\n{report.published} of {report.upper} epochs published",
        f", the newest minted {clock(report.minted_at)}\n",
        *([f"compacted: epochs before {report.since} can no longer be told apart\n"] if report.since else []),
        *(f"epoch {held.epoch} is held by {held.owner}, since {clock(held.at)}\n" for held in report.holds),
        f"store {report.store}\n",
    )
    sources = grid("source", "state", "partitions", "published", "upstream", "lag")
    for source in report.sources:
        sources.add_row(
            source.name,
            state_text(source.state),
            f"{source.partitions:,}",
            amount(source.published, source.unit),
            amount(source.end, source.unit),
            amount(source.lag, source.unit),
        )
    notes = [Text(f"{source.name}: {source.note}", style="yellow") for source in report.sources if source.note]
    notes += [
        Text(f"{source.name}: incarnation {source.incarnation} of its upstream", style="yellow")
        for source in report.sources
        if source.incarnation
    ]
    notes += [
        Text(f"{source.name}: {amount(source.lost, source.unit)} lost, which are not in every table", style="red")
        for source in report.sources
        if source.lost
    ]
    notes += [_held_back(source) for source in report.sources if source.held_back is not None]
    since = [(s.name, s.since) for s in report.sources] + [(o.name, o.since) for o in report.outputs]
    notes += [
        Text(f"{name}: stalled since {clock(at)}, tried again every {PATIENCE} s or sooner", style="red")
        for name, at in since
        if at is not None
    ]
    notes += [*_begun(report.outputs), *_coded(report.outputs), *_paused(report.outputs)]
    errors = errors_view([*(s.error for s in report.sources), *(o.error for o in report.outputs)])
    if report.awaited:
        notes.append(Text(TickHeld(sources=report.awaited).summary, style="yellow"))
    return Group(head, sources, *notes, Text(), _table(report.outputs), *errors)


def _held_back(source: SourceReport) -> Text:
    """Return how much upstream keeps for the flow."""
    said = f"{source.name}: upstream keeps {amount(source.held_back or 0, 'bytes')} of its log for this flow"
    if source.held_back_limit is not None:
        said += f", of {amount(source.held_back_limit, 'bytes')} at most"
    return Text(f"{said}, and is about to remove them", style="red") if source.ending else Text(said)


def status_json(report: FlowReport) -> dict[str, Any]:
    """Return a flow's report as data."""
    return {
        "flow": report.name,
        "store": report.store,
        "running": report.running or None,
        "silent": report.silent or None,
        "upper": report.upper,
        "published": report.published,
        "minted_at": iso(report.minted_at),
        "since": report.since,
        "holds": [{"owner": held.owner, "epoch": held.epoch, "at": iso(held.at)} for held in report.holds],
        "awaited": list(report.awaited),
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
                "required": s.required,
                "incarnation": s.incarnation,
                "lost": s.lost,
                "held_back": s.held_back,
                "held_back_limit": s.held_back_limit,
                "stalled_since": iso(s.since),
                "error": None if s.error is None else error_json(s.error),
            }
            for s in report.sources
        ],
        "outputs": [output_json(one) for one in report.outputs],
    }


def outputs_view(found: Sequence[OutputReport]) -> RenderableType:
    """Return outputs as a table, with the reasons of those that are paused, and the errors."""
    notes = [*_begun(found), *_coded(found), *_paused(found)]
    return Group(_table(found), *notes, *errors_view([output.error for output in found]))


def _table(found: Iterable[OutputReport]) -> Table:
    table = grid("output", "state", "source", "epochs", "lag", "rows", "size", "files")
    for output in found:
        table.add_row(
            output.name,
            phase_text(output),
            output.source,
            f"{output.upper:,}",
            amount(output.lag, "epochs"),
            f"{output.rows:,}",
            amount(output.bytes, "bytes"),
            f"{output.files:,}",
        )
    return table


def _begun(found: Iterable[OutputReport]) -> list[Text]:
    """Return where outputs begin that do not begin with their source."""
    from tidegauge.remap.stamps import FAITHFUL
    from tidegauge.remap.start import WITH_SOURCE

    said = []
    for name, start in [(output.name, output.start) for output in found if output.start is not None]:
        if start.said != WITH_SOURCE:
            said.append(f"{name}: begins at epoch {start.epoch} (start={start.said})")
        elif start.epoch:
            said.append(f"{name}: begins at epoch {start.epoch}, with its stream, which came later than its source")
        if start.past is not None and start.stamps is not None:
            why = "these were compacted" if start.stamps.said == FAITHFUL.said else f"timestamps={start.stamps.said}"
            said.append(f"{name}: all rows up to epoch {start.stamp} have that epoch ({why})")
    return [Text(text, style="yellow") for text in said]


def _coded(found: Iterable[OutputReport]) -> list[Text]:
    """Return from which epochs on outputs have other code than before."""
    return [
        Text(f"{output.name}: its code changed at epoch {', '.join(f'{epoch:,}' for epoch in output.coded_at)}")
        for output in found
        if output.coded_at
    ]


def _paused(outputs: Sequence[OutputReport]) -> list[Text]:
    """Return for each paused output why and since when, and what that costs."""
    found, states = [], {output.name: output.state for output in outputs}
    for output in (output for output in outputs if output.paused):
        since = [pause.at for pause in output.paused if pause.at is not None]
        when = f" since {clock(min(since))}" if since else ""
        reasons = ", ".join(pause.reason for pause in output.paused)
        said = (
            f"{output.name}: paused ({reasons}){when}; upstream keeps what it lacks, from epoch {output.upper:,} on"
        )
        if output.waits_for:
            said += f"; it waits for {', '.join(f'{name} ({states[name]})' for name in output.waits_for)}"
        found.append(Text(said, style="magenta"))
    return found


def _settled(record: StartRecord | StampRecord) -> dict[str, Any]:
    return {"epoch": record.epoch, "said": json.loads(record.said)}


def output_json(output: OutputReport) -> dict[str, Any]:
    """Return an output's report as data."""
    from tidegauge.remap.start import WITH_SOURCE

    start = output.start
    return {
        "name": output.name,
        "source": output.source,
        "state": output.state,
        "upper": output.upper,
        "lag": output.lag,
        "rows": output.rows,
        "bytes": output.bytes,
        "files": output.files,
        "start": None if start is None or start.said == WITH_SOURCE else _settled(start),
        "timestamps": None if start is None or start.stamps is None else _settled(start.stamps),
        "code_changed_at": list(output.coded_at),
        "filled": None if output.filled is None else asdict(output.filled),
        "replacing": output.replacing,
        "paused": [{"reason": pause.reason, "since": iso(pause.at)} for pause in output.paused],
        "waits_for": list(output.waits_for),
        "stalled_since": iso(output.since),
        "error": None if output.error is None else error_json(output.error),
    }
