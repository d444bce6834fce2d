"""The commands that hold a flow's store and its tables against each other, and bring back what one of them lacks.

Invariant: each shows one value, as lines for people or as data for programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

import tidegauge as tg
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
from tidegauge.errors.history import listed

if TYPE_CHECKING:
    from tidegauge.looking.verify import Verified
    from tidegauge.maintenance.recover import Recovered
    from tidegauge.maintenance.repair import Repaired
    from tidegauge.maintenance.store import BackedUp

__all__ = [
    "backed_up_json",
    "backed_up_view",
    "backup",
    "recover",
    "recovered_json",
    "recovered_view",
    "repair",
    "repaired_json",
    "repaired_view",
    "verified_json",
    "verified_view",
    "verify",
]


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
            print_json(backed_up_json(done))
        else:
            print_view(backed_up_view(done))


def recover(target: Target, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Bring back a store that is lost, or older than the tables, from the tables. Not while the flow runs."""
    with errors_said(debug=debug, as_json=as_json):
        done = tg.recover(load_flow(target))
        if as_json:
            print_json(recovered_json(done))
        else:
            print_view(recovered_view(done))


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
            print_json(repaired_json(done))
        else:
            print_view(repaired_view(done))


def verify(target: Target, *, as_json: AsJson = False, debug: Debug = False) -> None:
    """Check the store and the tables against each other. Ends with 1 when something is wrong."""
    with errors_said(debug=debug, as_json=as_json):
        found = tg.verify(load_flow(target))
        if as_json:
            print_json(verified_json(found))
        else:
            print_view(verified_view(found))
        if found.problems:
            raise typer.Exit(1)


def backed_up_view(done: BackedUp) -> RenderableType:
    """Return what a backup came to as a line."""
    return Text(f"{done.store} is copied to {done.file} ({done.bytes:,} bytes)")


def backed_up_json(done: BackedUp) -> dict[str, Any]:
    """Return what a backup came to as data."""
    return {"store": done.store, "file": done.file, "bytes": done.bytes}


def recovered_view(done: Recovered) -> RenderableType:
    """Return what a recovery came to as lines."""
    if not done.changed:
        return Text(f"{done.flow}: the store and the tables have one history; nothing was changed")
    lines = [f"{done.flow}: the timeline is back, {done.upper} epochs; the next run goes on with epoch {done.upper}"]
    if done.gaps:
        lines.append(f"{done.gaps} gaps are back, which the tables have told")
    if done.kept:
        lines.append(f"the epochs before {done.kept} are the store's own, the others are from the tables")
    lines += [f"output {name} holds the epochs before {upper}" for name, upper in done.outputs.items()]
    lines += [f"not to be had: {said}" for said in done.lacking]
    return Text("\n".join(lines))


def recovered_json(done: Recovered) -> dict[str, Any]:
    """Return what a recovery came to as data."""
    return {
        "flow": done.flow,
        "incarnation": done.incarnation,
        "changed": done.changed,
        "upper": done.upper,
        "kept": done.kept,
        "since": done.since,
        "outputs": dict(done.outputs),
        "gaps": done.gaps,
        "lacking": list(done.lacking),
    }


def repaired_view(done: Repaired) -> RenderableType:
    """Return what a repair came to as lines."""
    if not done.changed:
        return Text(f"{done.flow}: output {done.output} lacks nothing; nothing was changed")
    if done.begun_anew:
        return Text(f"{done.flow}: nothing of output {done.output} is there; the next run writes it anew")
    lines = [f"{done.flow}: output {done.output} is repaired, and holds the epochs before {done.upper}"]
    if done.epochs:
        said = listed(range(first, last + 1) for first, last in done.epochs)
        lines.append(f"written anew: the epochs {said}, {done.rows:,} rows")
    lines += [f"taken out: {path}" for path in done.removed]
    return Text("\n".join(lines))


def repaired_json(done: Repaired) -> dict[str, Any]:
    """Return what a repair came to as data."""
    return {
        "flow": done.flow,
        "output": done.output,
        "changed": done.changed,
        "begun_anew": done.begun_anew,
        "epochs": [list(one) for one in done.epochs],
        "rows": done.rows,
        "removed": list(done.removed),
        "upper": done.upper,
    }


def verified_view(found: Verified) -> RenderableType:
    """Return what a verification found as lines."""
    lines = [
        f"{found.flow}: {found.upper} epochs are bound; {found.epochs} digests and {found.files} files were checked"
    ]
    if found.recoverable is None:
        lines.append("the tables alone could not bring the timeline back: keep backups of the store")
    elif found.recoverable[0]:
        lines.append(f"the tables alone could bring back the timeline from epoch {found.recoverable[0]} on")
    lines += list(found.problems) or ["nothing is wrong"]
    return Text("\n".join(lines))


def verified_json(found: Verified) -> dict[str, Any]:
    """Return what a verification found as data."""
    alone = found.recoverable
    return {
        "flow": found.flow,
        "upper": found.upper,
        "since": found.since,
        "epochs": found.epochs,
        "files": found.files,
        "recoverable": None if alone is None else {"since": alone[0], "upper": alone[1]},
        "problems": list(found.problems),
    }
