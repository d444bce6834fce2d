"""The commands `tidegauge outputs ...`: each decides about one output, or shows them all.

Invariant: each shows one value, as lines for people or as data for programs.
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
from tidegauge.cli.standing import output_json, outputs_view

if TYPE_CHECKING:
    from tidegauge.maintenance.outputs import (
        AcceptedCode,
        AddedOutput,
        DroppedOutput,
        OutputDecision,
        RateDecision,
        ReplacementDecision,
    )

__all__ = [
    "accepted_view",
    "added_view",
    "decision_json",
    "decision_view",
    "dropped_view",
    "outputs",
    "rate_view",
    "replacement_view",
]

outputs = typer.Typer(
    name="outputs", help="The outputs of a flow: show them, pause one, let it go on.", no_args_is_help=True
)

Output = Annotated[str, typer.Argument(metavar="OUTPUT", help="The output.")]


@outputs.command("list")
def list_(target: Target, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show where the outputs stand, without asking the sources."""
    with errors_said(debug=debug, as_json=as_json):
        found = tg.outputs(load_flow(target))
        if as_json:
            print_json([output_json(one) for one in found])
        else:
            print_view(outputs_view(found))


@outputs.command()
def pause(target: Target, output: Output, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Begin nothing more for an output; the others go on without it. The flow may be running."""
    with errors_said(debug=debug, as_json=as_json):
        _print(tg.pause(load_flow(target), output), as_json=as_json)


@outputs.command()
def resume(target: Target, output: Output, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Let a paused output go on where it was. The flow may be running."""
    with errors_said(debug=debug, as_json=as_json):
        _print(tg.unpause(load_flow(target), output), as_json=as_json)


@outputs.command()
def rate(
    target: Target,
    rows: Annotated[str, typer.Argument(metavar="N|auto|off", help="Rows a second for all late outputs together.")],
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Limit how fast the past is read for late outputs; 0 pauses them, auto gives way. The flow may be running."""
    if rows not in ("off", "auto") and not (rows.isascii() and rows.isdecimal() and len(rows) < 19):
        raise typer.BadParameter(
            f"{rows!r} is neither a number of rows a second nor 'auto' or 'off'", param_hint="N|auto|off"
        )
    with errors_said(debug=debug, as_json=as_json):
        done = tg.limit(load_flow(target), "auto" if rows == "auto" else None if rows == "off" else int(rows))
        if as_json:
            print_json(
                {"flow": done.flow, "rate": done.rate, "changed": done.changed, "running": done.running or None}
            )
        else:
            print_view(rate_view(done))


@outputs.command()
def add(target: Target, output: Output, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Let the driver that runs the flow load the file again, and take a new output in, without a restart."""
    with errors_said(debug=debug, as_json=as_json):
        done = tg.add(load_flow(target), output)
        if as_json:
            print_json({**asdict(done), "running": done.running or None})
        else:
            print_view(added_view(done))


@outputs.command()
def drop(
    target: Target,
    output: Output,
    *,
    table: Annotated[bool, typer.Option("--table", help="Remove its table, too, with all that is in it.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Forget an output, with its plan, its staged files and its holds. The flow may be running."""
    with errors_said(debug=debug, as_json=as_json):
        done = tg.drop(load_flow(target), output, table=table)
        if as_json:
            print_json({**asdict(done), "running": done.running or None})
        else:
            print_view(dropped_view(done))


@outputs.command("from-here")
def from_here(target: Target, output: Output, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Let an output go on with its changed code, from the next epoch on. Not while the flow runs."""
    with errors_said(debug=debug, as_json=as_json):
        done = tg.from_here(load_flow(target), output)
        if as_json:
            print_json({"flow": done.flow, "output": done.output, "epoch": done.epoch, "changes": list(done.changes)})
        else:
            print_view(accepted_view(done))


@outputs.command()
def replace(target: Target, output: Output, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Make all rows of an output anew by its present code, and then put them in at once. The flow may be running."""
    with errors_said(debug=debug, as_json=as_json):
        _print_replacement(tg.replace(load_flow(target), output), as_json=as_json)


@outputs.command()
def rebuild(target: Target, output: Output, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Make all rows of an output anew by its unchanged code, as replace does. The flow may be running."""
    with errors_said(debug=debug, as_json=as_json):
        _print_replacement(tg.rebuild(load_flow(target), output), as_json=as_json)


def _print_replacement(done: ReplacementDecision, *, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(done), "changes": list(done.changes), "running": done.running or None})
    else:
        print_view(replacement_view(done))


def _print(done: OutputDecision, *, as_json: bool) -> None:
    if as_json:
        print_json(decision_json(done))
    else:
        print_view(decision_view(done))


def decision_view(done: OutputDecision) -> RenderableType:
    """Return what a decision came to, as a line."""
    said = f"is paused ({', '.join(done.reasons)})" if done.reasons else "is not paused"
    return Text(f"{done.flow}: output {done.output} {said}{_when(done)}")


def added_view(done: AddedOutput) -> RenderableType:
    """Return that an output is to be taken in, as a line."""
    if not done.running:
        return Text(f"{done.flow}: nobody runs the flow, and the next run begins with output {done.output}")
    if not done.changed:
        return Text(f"{done.flow}: its driver has output {done.output}, or has heard of it: {done.running}")
    return Text(f"{done.flow}: its driver takes output {done.output} in within seconds: {done.running}")


def dropped_view(done: DroppedOutput) -> RenderableType:
    """Return that an output is dropped, as a line."""
    more = "; it is still in the flow, and begins anew with the next run" if done.declared else ""
    table = " with its table" if done.table else ", and its table stays"
    if done.running:
        return Text(
            f"{done.flow}: its driver drops output {done.output}{table}, within seconds: {done.running}{more}"
        )
    return Text(f"{done.flow}: output {done.output} is dropped{table}{more}")


def accepted_view(done: AcceptedCode) -> RenderableType:
    """Return from where on an output has its present code, as lines."""
    if not done.changes:
        return Text(f"{done.flow}: the code of output {done.output} is as before")
    said = f"{done.flow}: output {done.output} goes on with its present code, from epoch {done.epoch} on"
    return Text("\n".join([said, *(f"  {change}" for change in done.changes)]))


def replacement_view(done: ReplacementDecision) -> RenderableType:
    """Return that an output's rows are made again, as lines."""
    who = (
        f"its driver begins within seconds if it has this code, otherwise the next one that has: {done.running}"
        if done.running
        else "nobody runs the flow, and the next run begins with it"
    )
    said = f"{done.flow}: all rows of output {done.output} are made again; until all are there its table stays; {who}"
    return Text("\n".join([said, *(f"  {change}" for change in done.changes)]))


def rate_view(done: RateDecision) -> RenderableType:
    """Return the limit of late outputs, as a line."""
    if done.rate is None:
        said = "late outputs are read without a limit"
    elif done.rate == "auto":
        said = "late outputs are read as fast as the live ones allow"
    else:
        said = (
            f"late outputs get at most {done.rate:,} rows a second" if done.rate else "late outputs are paused (rate)"
        )
    return Text(f"{done.flow}: {said}{_when(done)}")


def _when(done: OutputDecision | RateDecision) -> str:
    if not done.changed:
        return ", as before"
    if done.running:
        return f"; its driver hears of it within seconds: {done.running}"
    return "; nobody runs the flow, and the next run goes by it"


def decision_json(done: OutputDecision) -> dict[str, Any]:
    """Return the same as data."""
    return {
        "flow": done.flow,
        "output": done.output,
        "changed": done.changed,
        "paused": list(done.reasons),
        "running": done.running or None,
    }
