"""The command that loads files once into an output of a flow.

Invariant: it shows one value, as lines for people or as data for programs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

import tidegauge as tg
from tidegauge.cli.frame import AsJson, Debug, Target, errors_said, print_json, print_view
from tidegauge.cli.load import load_flow

if TYPE_CHECKING:
    from tidegauge.maintenance.loading import Load

__all__ = ["load", "loaded_json", "loaded_view"]

_FORMATS = {"csv": "Csv", "json": "Json", "parquet": "Parquet"}


def load(
    target: Target,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="The output that the rows are for.")],
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="ADDRESS...", help="Paths, patterns in quotes, addresses in object stores, or URLs of files."
        ),
    ],
    *,
    format: Annotated[
        str | None,
        typer.Option("--format", help="'csv', 'json' (lines) or 'parquet'. [default: told by the files' names]"),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Load files once: all of them in one epoch of an output, or nothing; the flow may be running."""
    if format is not None and format not in _FORMATS:
        raise typer.BadParameter(f"{format!r} is none of 'csv', 'json' and 'parquet'", param_hint="--format")
    with errors_said(debug=debug, as_json=as_json):
        kind = None if format is None else getattr(tg, _FORMATS[format])()
        done = tg.load(load_flow(target), output, addresses, format=kind)
        if as_json:
            print_json(loaded_json(done))
        else:
            print_view(loaded_view(done))


def loaded_view(done: Load) -> RenderableType:
    """Return a load as a line."""
    files = "1 file" if done.files == 1 else f"{done.files:,} files"
    rows = "1 row" if done.rows == 1 else f"{done.rows:,} rows"
    if done.failed:
        who = (
            f"{done.source} has failed, with {done.failed}; it takes them once it is resumed: tidegauge resume "
            f"{done.flow} {done.source}"
        )
    elif done.running:
        who = f"{done.running} runs the flow, and takes them into its next epoch"
    else:
        who = "nobody runs the flow, and the next run takes them into its first epoch"
    return Text(f"{done.flow}: {files} with {rows} are loaded for {done.output}, as {done.source}/{done.name}; {who}")


def loaded_json(done: Load) -> dict[str, Any]:
    """Return a load as data."""
    return {**asdict(done), "running": done.running or None, "failed": done.failed or None}
