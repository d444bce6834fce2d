"""`tidegauge tail`: an output's rows as they come, a line each, for people or as JSON.

Invariant: lines are in the order of epochs, and those of an epoch are complete before any of a later one.

>>> print(line({"_epoch": 3, "_diff": -1, "id": 7, "name": "ada"}))
3  -1  id=7  name=ada
>>> print(line({"_epoch": 3, "_progressed": True, "_diff": None, "id": None, "name": None}))
3  everything before this epoch is there
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tidegauge.cli.frame import AsJson, Debug, Target, errors_said
from tidegauge.cli.load import load_flow
from tidegauge.cli.locate import plain, shown

if TYPE_CHECKING:
    from tidegauge.looking.envelopes import Enveloping

__all__ = ["line", "tail"]


def tail(
    target: Target,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="The output to follow.")],
    *,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="EPOCH|TIME", help="Where to begin. [default: the newest published epoch]"),
    ] = None,
    up_to: Annotated[
        int | None, typer.Option(metavar="EPOCH", min=0, help="The first epoch not to show; then it ends.")
    ] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot/--no-snapshot", help="Whether to begin with the rows that are there.")
    ] = True,
    progress: Annotated[bool, typer.Option("--progress", help="Say how far it is.")] = False,
    envelope: Annotated[
        str | None, typer.Option(metavar="upsert|debezium", help="Show what became of the row of each key.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column of the key; may be repeated.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Follow an output: its rows as of an epoch, then what each later epoch changes. Ctrl-C ends it."""
    if envelope not in (None, "upsert", "debezium"):
        raise typer.BadParameter(f"{envelope!r} is neither 'upsert' nor 'debezium'", param_hint="--envelope")
    moment = int(as_of) if as_of is not None and re.fullmatch(r"\d{1,18}", as_of) else as_of
    with errors_said(debug=debug, as_json=as_json):
        following = load_flow(target).subscribe(
            output,
            as_of=moment,
            up_to=up_to,
            snapshot=snapshot,
            progress=progress,
            envelope=cast("Enveloping | None", envelope),
            key=key or None,
        )
        try:
            for batch in following:
                for row in batch.to_pylist():
                    print(json.dumps({name: plain(value) for name, value in row.items()}) if as_json else line(row))
                sys.stdout.flush()
        except KeyboardInterrupt:
            return
        except BrokenPipeError:  # whoever read it has seen enough; nothing is to be flushed into the pipe at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def line(row: Mapping[str, Any]) -> str:
    """Return a row of a subscription as a line."""
    if row.get("_progressed"):
        return f"{row['_epoch']}  everything before this epoch is there"
    how = row["_state"] if "_state" in row else f"{row['_diff']:+d}"
    said = [name for name in row if name not in ("_epoch", "_diff", "_state", "_progressed")]
    return "  ".join([str(row["_epoch"]), how, *(f"{name}={shown(row[name])}" for name in said)])
