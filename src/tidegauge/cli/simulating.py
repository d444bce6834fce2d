"""`tidegauge simulate`: the flow of a file in simulated worlds, one for each seed.

Invariant: nothing outside of this process is read or written but the file: no source, no store, no table. So Ctrl-C
ends it on the spot.
"""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from tidegauge.cli.frame import Debug, Target, errors_said, print_view
from tidegauge.cli.load import flow_maker
from tidegauge.cli.show import error_text
from tidegauge.errors.simulation import SeedPasses, SimulationFailed

if TYPE_CHECKING:
    from tidegauge.testing.simulation import Shrinking, Simulated

__all__ = ["INTERRUPTED", "SimulationLine", "kinds_of", "quiet", "say_failed", "simulate"]

SEEDS = 100
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it."""


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
            help="What may go wrong, such as crash,pause; none for nothing. All but decisions, if left out.",
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
        wanted = range(first, first + seeds) if replay is None else [replay]
        quiet()
        try:
            with SimulationLine(len(wanted)) as line:
                signal.signal(signal.SIGINT, line.interrupted)
                done = simulation.simulate(
                    make_flow,
                    seeds=wanted,
                    faults=kinds,
                    epochs=epochs,
                    after=lambda _seed, so_far: line.held(so_far),
                    shrinking=line.shrinking,
                )
        except SimulationFailed as failed:
            if debug:
                raise
            say_failed(failed, target, faults=faults, epochs=epochs)
            raise typer.Exit(1) from None
        if replay is not None:
            raise SeedPasses(seed=replay, lives=done.lives)
        print_view(Text(str(done)))


def kinds_of(faults: str | None) -> list[str] | None:
    """Return the kinds of faults that a command line names, None for all.

    >>> kinds_of("crash, pause"), kinds_of("none"), kinds_of(None)
    (['crash', 'pause'], [], None)
    """
    if faults is None:
        return None
    return [] if faults == "none" else [kind.strip() for kind in faults.split(",")]


def quiet() -> None:
    """Make this process one that does nothing but simulate.

    Warnings do not tear the progress line. Loaded modules stay to the end, so the garbage collector need not look at
    them again, which takes it most of its time.
    """
    warnings.simplefilter("ignore")
    gc.freeze()


def say_failed(failed: SimulationFailed, target: str, *, faults: str | None, epochs: int) -> None:
    """Print a failure for people, and the command that shows it again."""
    options = [] if faults is None else ["--faults", faults]
    seed = str(failed.evidence["seed"])
    again = ["tidegauge", "simulate", target, *options, "--epochs", str(epochs), "--replay", seed]
    text = error_text(failed).append(f"\nreplay it:      {shlex.join(again)}")
    Console(stderr=True).print(text, soft_wrap=True)


class SimulationLine:
    """The line that says how far a simulation is: on a terminal, while there is something to wait for."""

    def __init__(self, seeds: int) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("seeds  {task.description}"), TimeRemainingColumn())
        console = Console(stderr=True)
        self._line: Final = Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())
        self._task: Final = self._line.add_task("", total=seeds)
        self._said = "nothing was done yet"

    def __enter__(self) -> SimulationLine:
        self._line.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._line.stop()

    def held(self, so_far: Simulated) -> None:
        """Say how many seeds held."""
        self._said = str(so_far)
        seconds = self._line.tasks[0].elapsed or 1.0
        said = f"{so_far.lives} lives, {60 * so_far.lives / seconds:.0f} a minute"
        self._line.update(self._task, completed=so_far.seeds, description=said, refresh=True)

    def shrinking(self, found: Shrinking) -> None:
        """Say that a seed failed, and how short its life is by now."""
        self._said = f"seed {found.seed} fails; --replay {found.seed} shows it"
        self._line.update(self._task, description=str(found), refresh=True)

    def stopped(self) -> str:
        """Return how far it came when somebody stops it, for people."""
        return f"Stopped: {self._said}"

    def interrupted(self, _number: int, _frame: FrameType | None) -> NoReturn:
        """End the process at once. An exception in its place could be taken for one of a world's driver."""
        self._line.stop()
        print(self.stopped(), file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)
