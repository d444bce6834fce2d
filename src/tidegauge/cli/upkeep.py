"""The command that keeps a flow's tables in shape.

Invariant: it shows one value, as lines for people or as data for programs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

import tidegauge as tg
from tidegauge.cli import show
from tidegauge.cli.frame import AsJson, Debug, Target, errors_said, print_json, print_view
from tidegauge.cli.load import load_flow
from tidegauge.errors.base import brief

if TYPE_CHECKING:
    from tidegauge.maintenance.maintain import Maintained, MaintainedOutput

__all__ = ["maintain", "maintained_json", "maintained_view"]


def maintain(
    target: Target,
    *,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", metavar="NAME", help="An output, several times for more. [default: all]"),
    ] = None,
    retention_hours: Annotated[
        int | None,
        typer.Option(
            "--retention-hours",
            metavar="N",
            min=0,
            help="How long files stay for readers of older versions. [default: what each table says, else 168]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Pack small files of the tables, remove files that nothing names, keep logs short; the flow may be running.

    Ends with 1 when a table could not be maintained.
    """
    with errors_said(debug=debug, as_json=as_json):
        retention = None if retention_hours is None else timedelta(hours=retention_hours)
        done = tg.maintain(load_flow(target), output, retention=retention, dry_run=dry_run)
        if as_json:
            print_json(maintained_json(done))
        else:
            print_view(maintained_view(done))
        if any(one.error is not None for one in done.outputs):
            raise typer.Exit(1)


def maintained_view(done: Maintained) -> RenderableType:
    """Return what a maintenance came to as lines."""
    head = f"{done.flow}: nothing was changed, this was a dry run" if done.dry_run else f"{done.flow}: maintained"
    return Text("\n".join([head, *(line for one in done.outputs for line in _lines(one, dry_run=done.dry_run))]))


def _lines(one: MaintainedOutput, *, dry_run: bool) -> list[str]:
    if one.left:
        return [f"{one.output}: left alone, {one.left}"]
    before, after = one.files
    did = "would be " if dry_run else ""
    lines: list[str] = []
    if one.packed:
        at = f", as version {one.versions[-1]}" if one.versions else ""
        lines.append(
            f"{one.output}: {before:,} files {'would become' if dry_run else 'became'} {after:,} "
            f"({one.packed:,} of them {did}packed, {one.rows:,} rows, {one.bytes:,} bytes{at})"
        )
    elif before and one.error is None:
        lines.append(f"{one.output}: {before:,} {'file' if before == 1 else 'files'}, nothing to pack")
    if one.given_up:
        lines.append(f"{one.output}: {one.given_up} packs were given up: a driver has changed their files meanwhile")
    if one.removed:
        lines.append(
            f"{one.output}: {one.removed:,} files that nothing named {'would be' if dry_run else 'were'} removed, "
            f"{one.freed:,} bytes"
        )
    if one.kept:
        lines.append(f"{one.output}: {one.kept:,} files stay that the running driver may have staged")
    if one.checkpoint is not None:
        lines.append(f"{one.output}: checkpoint of version {one.checkpoint}")
    if one.error is not None:
        lines.append(f"{one.output}: {brief(one.error)}")
    return lines or [f"{one.output}: holds nothing"]


def maintained_json(done: Maintained) -> dict[str, Any]:
    """Return what a maintenance came to as data."""
    return {
        "flow": done.flow,
        "dry_run": done.dry_run,
        "outputs": [
            {
                "output": one.output,
                "kind": one.kind,
                "left": one.left or None,
                "files_before": one.files[0],
                "files_after": one.files[1],
                "packed": one.packed,
                "rows_rewritten": one.rows,
                "bytes_rewritten": one.bytes,
                "versions": list(one.versions),
                "given_up": one.given_up,
                "removed": one.removed,
                "bytes_freed": one.freed,
                "kept": one.kept,
                "checkpoint": one.checkpoint,
                "error": None if one.error is None else show.error_json(one.error),
            }
            for one in done.outputs
        ],
    }
