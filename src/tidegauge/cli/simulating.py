"""`tidegauge simulate`: the flow of a file in simulated worlds, one for each seed.

Invariant: nothing outside of this process is read or written but the file: no source, no store, no table.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from tidegauge.cli.frame import Debug, Target, errors_said, print_view
from tidegauge.cli.load import flow_maker

if TYPE_CHECKING:
    from tidegauge.testing.simulation import Simulated

__all__ = ["bar", "kinds_of", "simulate"]

SEEDS = 100


def simulate(
    target: Target,
    *,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds.")] = SEEDS,
    first: Annotated[int, typer.Option("--first", min=0, help="The first seed.")] = 0,
    faults: Annotated[
        str | None,
        typer.Option(
            "--faults",
            metavar="KIND,...",
            help="What may go wrong, such as crash,pause; none for nothing. All, if left out.",
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, help="For how many ticks of the flow there is new data.")
    ] = 30,
    replay: Annotated[
        int | None, typer.Option("--replay", metavar="SEED", min=0, help="Show the failure of this seed once more.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a flow in simulated worlds, and show the shortest life that breaks a law. It touches no source or table.

    The file is loaded anew for each driver. Its flow is taken, or what its function make_flow returns if it has one.
    """
    with errors_said(debug=debug):
        from tidegauge.testing import simulation

        make_flow, kinds = flow_maker(target), kinds_of(faults)
        if replay is not None:
            raise simulation.replay(make_flow, seed=replay, faults=kinds, epochs=epochs)
        with bar() as progress:
            shown = progress.add_task("", total=seeds)

            def after(_seed: int, so_far: Simulated) -> None:
                progress.update(shown, completed=so_far.seeds, description=f"{so_far.lives} lives")

            wanted = range(first, first + seeds)
            done = simulation.simulate(make_flow, seeds=wanted, faults=kinds, epochs=epochs, after=after)
        print_view(Text(str(done)))


def kinds_of(faults: str | None) -> list[str] | None:
    """Return the kinds of faults that a command line names, None for all.

    >>> kinds_of("crash, pause"), kinds_of("none"), kinds_of(None)
    (['crash', 'pause'], [], None)
    """
    if faults is None:
        return None
    return [] if faults == "none" else [kind.strip() for kind in faults.split(",")]


def bar() -> Progress:
    """Return a progress line: on a terminal, while there is something to wait for."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("seeds  {task.description}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
