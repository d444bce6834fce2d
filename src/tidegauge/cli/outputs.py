"""The commands `tidegauge outputs ...`: each decides about one output, or shows them all.

Invariant: each shows one value, as lines for people or as data for programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

import tidegauge as tg
from tidegauge.cli.frame import AsJson, Debug, Target, errors_said, print_json, print_view
from tidegauge.cli.load import load_flow
from tidegauge.cli.standing import output_json, outputs_view

if TYPE_CHECKING:
    from tidegauge.maintenance.outputs import OutputDecision

__all__ = ["decision_json", "decision_view", "outputs"]

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


def _print(done: OutputDecision, *, as_json: bool) -> None:
    if as_json:
        print_json(decision_json(done))
    else:
        print_view(decision_view(done))


def decision_view(done: OutputDecision) -> RenderableType:
    """Return what a decision came to, as a line."""
    said = f"is paused ({', '.join(done.reasons)})" if done.reasons else "is not paused"
    if done.changed and done.running:
        said += f"; its driver hears of it within seconds: {done.running}"
    elif done.changed:
        said += "; nobody runs the flow, and the next run goes by it"
    else:
        said += ", as before"
    return Text(f"{done.flow}: output {done.output} {said}")


def decision_json(done: OutputDecision) -> dict[str, Any]:
    """Return the same as data."""
    return {
        "flow": done.flow,
        "output": done.output,
        "changed": done.changed,
        "paused": list(done.reasons),
        "running": done.running or None,
    }
