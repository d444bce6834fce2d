"""The program and its commands; what they have in common is in `frame`.

Invariant: to list the commands, or to say how one is used, loads none of what they do: that comes with the flow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

import tidegauge as tg
from tidegauge.cli import locate as places
from tidegauge.cli import show, standing, tables, upkeep
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
from tidegauge.cli.load import load_flow, parse_target, send_by_value
from tidegauge.cli.loading import load
from tidegauge.cli.outputs import outputs
from tidegauge.cli.run import LiveBoard, make_engine, run_flow
from tidegauge.cli.simulating import simulate
from tidegauge.cli.tail import tail

if TYPE_CHECKING:
    from tidegauge.flow.spec import FlowSpec

__all__ = ["app"]

app = typer.Typer(
    name="tidegauge",
    help="Many sources, one durable timeline of epochs, many tables that agree.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

leases = typer.Typer(
    name="lease", help="The right to run a flow, which one driver has at a time.", no_args_is_help=True
)
app.add_typer(leases)
app.add_typer(outputs)

TRACED = 20
"""How many rows `trace` shows."""


@app.command()
def run(
    target: Target,
    *,
    until: Annotated[
        str | None, typer.Option(metavar="caught-up", help="Stop when all that is upstream now is in the tables.")
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Rows a second for all late outputs together, now and later."),
    ] = None,
    maintain: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Maintain the tables beside it, every so many seconds."),
    ] = None,
    engine: EngineName = "spark",
    spark: SparkUrl = None,
    debug: Debug = False,
) -> None:
    """Run a flow until it is interrupted. Ctrl-C finishes the epoch under way; a second one stops at once."""
    if until not in (None, "caught-up"):
        raise typer.BadParameter(f"{until!r} is not 'caught-up'", param_hint="--until")
    check_engine(engine, spark)
    with at_once(), errors_said(debug=debug):
        flow = load_flow(target)
        chosen = make_engine(engine, spark, folder=parse_target(target)[0].parent)
        progress = LiveBoard(Console(stderr=True), ends=until is not None)

        def newer() -> FlowSpec:
            found = load_flow(target).spec
            if engine != "local":
                send_by_value(parse_target(target)[0].parent)
            return found

        run_flow(flow, until=until, rate=rate, maintain=maintain, engine=chosen, progress=progress, newer=newer)


@app.command()
def status(target: Target, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show where a flow stands: states, positions, lag, epochs."""
    with errors_said(debug=debug, as_json=as_json):
        report = tg.status(load_flow(target))
        if as_json:
            print_json(standing.status_json(report))
        else:
            print_view(standing.status_view(report))


@app.command()
def epochs(
    target: Target,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest epochs to show.")] = 20,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the timeline: the newest epochs, with how much of each source they bind."""
    with errors_said(debug=debug, as_json=as_json):
        flow = load_flow(target)
        found = tg.epochs(flow, limit=limit)
        units = {name: source.unit for name, source in flow.sources.items()}
        if as_json:
            print_json(show.epochs_json(found))
        else:
            print_view(show.epochs_view(found, units))


class _WithNumbers(TyperCommand):
    """A command whose arguments may be negative numbers, which are otherwise taken for options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(re.fullmatch(r"-\d+", arg) for arg in args)
        return super().parse_args(ctx, args)


@app.command(cls=_WithNumbers)
def explain(
    target: Target,
    epoch: Annotated[int, typer.Argument(metavar="EPOCH", help="The epoch, counted from 0.")],
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the content of an epoch, where it came from and where it went."""
    if epoch < 0:
        raise typer.BadParameter(f"there is no epoch {epoch}: they are counted from 0", param_hint="EPOCH")
    with errors_said(debug=debug, as_json=as_json):
        report = tg.explain(load_flow(target), epoch)
        if as_json:
            print_json(show.explain_json(report))
        else:
            print_view(show.explain_view(report))


@app.command(cls=_WithNumbers)
def compact(
    target: Target,
    before: Annotated[
        str,
        typer.Argument(
            metavar="EPOCH|TIME",
            help="The first epoch to keep, or a time: the newest epoch published by then.",
        ),
    ],
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Let old epochs go: those before one can no longer be told apart. Not while the flow runs, and not undone."""
    epoch = int(before) if re.fullmatch(r"-?\d{1,18}", before) else None
    if epoch is not None and epoch < 0:
        raise typer.BadParameter(f"there is no epoch {epoch}: they are counted from 0", param_hint="EPOCH|TIME")
    with errors_said(debug=debug, as_json=as_json):
        done = tg.compact(load_flow(target), before=before if epoch is None else epoch)
        if as_json:
            print_json(show.compacted_json(done))
        else:
            print_view(show.compacted_view(done))


@app.command()
def resume(
    target: Target,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source that has failed.")],
    *,
    new_incarnation: Annotated[
        bool, typer.Option("--new-incarnation", help="Begin with what is upstream now, from its beginning.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Also when an output lacks what was bound of the old upstream."),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Let a source that has failed go on with the next run: as it was, or as a new incarnation."""
    if accept_loss and not new_incarnation:
        raise typer.BadParameter("goes with --new-incarnation", param_hint="--accept-loss")
    with errors_said(debug=debug, as_json=as_json):
        flow = load_flow(target)
        done = tg.resume(flow, source, new_incarnation=new_incarnation, accept_loss=accept_loss)
        if as_json:
            print_json(show.resumed_json(done))
        else:
            print_view(show.resumed_view(done, flow.sources[source].unit))


@leases.command("break")
def break_lease(
    target: Target,
    *,
    force: Annotated[bool, typer.Option("--force", help="Also when the driver is alive on this machine.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Take the lease of a flow from a driver that is gone, and say who had it. A driver that lives stops by it."""
    from tidegauge.maintenance import store

    with errors_said(debug=debug, as_json=as_json):
        flow = load_flow(target)
        holder = store.break_lease(flow, force=force)
        if as_json:
            print_json({"flow": flow.name, "holder": holder})
        else:
            print_view(Text(f"{flow.name}: the lease was held by {holder}; nobody holds it now"))


@app.command()
def retime(target: Target, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Take the times of epochs back to now that a clock which was ahead has put into the future."""
    from tidegauge.maintenance import store

    with errors_said(debug=debug, as_json=as_json):
        flow = load_flow(target)
        count = store.retime(flow)
        if as_json:
            print_json({"flow": flow.name, "epochs": count})
        else:
            print_view(Text(f"{flow.name}: {count} epochs had times in the future, and are of now"))


@app.command(cls=_WithNumbers)
def skip(
    target: Target,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source.")],
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Its partition: the key, or a file's path.")],
    lower: Annotated[int, typer.Argument(metavar="FROM", help="The first position to pass over.")],
    upper: Annotated[int, typer.Argument(metavar="TO", help="The first position after it.")],
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Go on past a range of records that cannot be read: it becomes a row of `gaps`. Not while the flow runs."""
    if not 0 <= lower < upper:
        raise typer.BadParameter("FROM and TO are positions, the lesser first", param_hint="FROM TO")
    with errors_said(debug=debug, as_json=as_json):
        flow = load_flow(target)
        done = tg.skip(flow, source, partition, lower, upper)
        if as_json:
            print_json(show.skipped_json(done))
        else:
            print_view(show.skipped_view(done, flow.sources[source].unit))


@app.command(cls=_WithNumbers)
def locate(
    target: Target,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source.")],
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Its partition: the key, or a file's path.")],
    position: Annotated[int, typer.Argument(metavar="POSITION", help="The record's position: a byte, an offset.")],
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show where a record went: its epoch, and which version of each table has it."""
    if position < 0:
        raise typer.BadParameter("positions are counted from 0", param_hint="POSITION")

    with errors_said(debug=debug, as_json=as_json):
        flow = load_flow(target)
        place = tg.locate(flow, source, partition, position)
        if as_json:
            print_json(places.place_json(place))
        else:
            print_view(places.place_view(place, flow.spec.unit_of(source)))


@app.command()
def trace(
    target: Target,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="The output that the rows are in.")],
    values: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE", help="What the rows are equal to.")],
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show where rows come from: their epoch, and the record upstream; at most 20 of those with the values."""
    from tidegauge.looking.read import trace as find

    asked = places.conditions(values)
    with errors_said(debug=debug, as_json=as_json):
        found = find(load_flow(target), output, asked, limit=TRACED)
        if as_json:
            print_json(places.trace_json(found))
        else:
            print_view(places.trace_view(found, asked))


for command in (tables.backup, tables.recover, tables.repair, tables.verify, upkeep.maintain, load, simulate, tail):
    app.command()(command)
