"""How backups, recoveries, repairs and verifications are shown: as lines for people, as data for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from tidegauge.errors.repair import listed

if TYPE_CHECKING:
    from tidegauge.looking.verify import Verified
    from tidegauge.maintenance.backup import BackedUp
    from tidegauge.maintenance.recover import Recovered
    from tidegauge.maintenance.repair import Repaired

__all__ = [
    "backed_up_json",
    "backed_up_view",
    "recovered_json",
    "recovered_view",
    "repaired_json",
    "repaired_view",
    "verified_json",
    "verified_view",
]


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
