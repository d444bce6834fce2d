"""The commands that hold a flow's store and its tables against each other, and bring back what one of them lacks."""

from __future__ import annotations

from typing import Annotated

import typer

import tidegauge as tg
from tidegauge.cli import history
from tidegauge.cli.frame import (
    AsJson,
    Debug,
    EngineName,
    SparkUrl,
    Target,
    at_once,
    check_engine,
    errors_said,
    print_json,
    print_view,
)
from tidegauge.cli.load import load_flow, parse_target
from tidegauge.cli.run import make_engine

__all__ = ["backup", "recover", "repair", "verify"]


def backup(
    target: Target,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the copy goes: a file that is not there yet.")],
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Copy the flow's store into a file, as of one instant; the flow may be running."""
    with errors_said(debug=debug, as_json=as_json):
        done = tg.backup(load_flow(target), file)
        if as_json:
            print_json(history.backed_up_json(done))
        else:
            print_view(history.backed_up_view(done))


def recover(target: Target, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Bring back a store that is lost, or older than the tables, from the tables. Not while the flow runs."""
    with errors_said(debug=debug, as_json=as_json):
        done = tg.recover(load_flow(target))
        if as_json:
            print_json(history.recovered_json(done))
        else:
            print_view(history.recovered_view(done))


def repair(
    target: Target,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="The output whose table others have changed.")],
    *,
    remove_foreign: Annotated[
        bool, typer.Option("--remove-foreign", help="Take out the files that others have written.")
    ] = False,
    from_epoch: Annotated[
        int | None,
        typer.Option("--from", metavar="EPOCH", min=0, help="Also write all epochs from this one on anew."),
    ] = None,
    engine: EngineName = "spark",
    spark: SparkUrl = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read the epochs that a table lacks once more, and put them in. Not while the flow runs."""
    check_engine(engine, spark)
    with at_once(), errors_said(debug=debug, as_json=as_json):
        flow = load_flow(target)
        chosen = make_engine(engine, spark, folder=parse_target(target)[0].parent)
        try:
            done = tg.repair(flow, output, from_epoch=from_epoch, remove_foreign=remove_foreign, engine=chosen)
        finally:
            chosen.close()
        if as_json:
            print_json(history.repaired_json(done))
        else:
            print_view(history.repaired_view(done))


def verify(target: Target, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Check the store and the tables against each other. Ends with 1 when something is wrong."""
    with errors_said(debug=debug, as_json=as_json):
        found = tg.verify(load_flow(target))
        if as_json:
            print_json(history.verified_json(found))
        else:
            print_view(history.verified_view(found))
        if found.problems:
            raise typer.Exit(1)
