"""What a driver leaves behind when it has stopped as it was told: nothing that somebody would have to clear away.

    holds                  nobody holds epochs back: the readers of a simulated world are done. Only the plan of an
                           output that has failed stands, with its hold
    staged files           neither its own, nor those of drivers that were gone before it began. Only the plan of
                           an output that has failed keeps the files that it has
    capabilities           each operator holds the next epoch, and none holds one that is over
    threads                as many as before the world

Files are no leak, for the next run sweeps them, if a driver wakes and stages them after its successor has swept; if
they are of a job that was under way when its own driver opened the flow again; or if removing them failed.

Invariant: looking changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidegauge.testing.simulation.ledger import Broken

if TYPE_CHECKING:
    from tidegauge.dataflow import Holder
    from tidegauge.testing.simulation.life import Life
    from tidegauge.testing.simulation.tables import LakeTable
    from tidegauge.testing.simulation.world import World

__all__ = ["nothing_leaked", "threads"]

_OURS: Final = "tidegauge"
_PLANS: Final = "SELECT output FROM backfills"
_UNITS: Final = "SELECT output, job FROM units"
_SHOWN: Final = 3


def threads() -> frozenset[str]:
    """Return the names of our threads in this process."""
    return frozenset(thread.name for thread in threading.enumerate() if thread.name.startswith(_OURS))


def nothing_leaked(world: World, last: Life) -> None:
    """Look at all that the last driver may have left. Raises `Broken`."""
    leaks: Mapping[str, Iterable[object]] = {
        "nothing holds epochs back without an owner": _holds(world),
        "no staged file is left over": _staged(world.lake.tables, last, world),
        "no operator holds an epoch that is over": _held(world, last),
        "a driver leaves no thread behind": sorted(threads() - world.threads),
    }
    for law, found in leaks.items():
        if left := [str(one) for one in found]:
            raise Broken(law, f"{len(left)}: {'; '.join(left[:_SHOWN])}")


def _holds(world: World) -> Iterator[tuple[object, ...]]:
    """Yield the holds, but for those of plans that stand: their outputs have failed, and the next run tries again."""
    planned = {f"backfill of {name}" for name in _planned(world)}
    yield from (hold for hold in world.ledger.ask("SELECT owner, epoch FROM holds") if hold[0] not in planned)


def _planned(world: World) -> set[str]:
    """Return the outputs that have failed, and whose plan stands."""
    return {name for (name,) in world.ledger.ask(_PLANS)} & world.ledger.failed_outputs()


def _held(world: World, last: Life) -> Iterator[Holder]:
    """Yield the capabilities of the past, and those held more than once. A failure leaves operators unmoved.

    So does one of an earlier run, if the last driver was told to stop before it had tried that output again.
    """
    runner = last.runner
    if runner is None or runner.board.errors or last.late or world.ledger.failed_outputs():
        return
    for holder in runner.explain_stuck():
        over = isinstance(holder.time, int) and holder.time != runner.board.upper
        if over or holder.kind != "output" or holder.count != 1:
            yield holder


def _staged(tables: Mapping[str, LakeTable], last: Life, world: World) -> Iterator[str]:
    """Yield the files that the last driver staged since it swept, and those that it should have swept."""
    drawn, planned = list(world.drew), _planned(world)
    recorded = {(name, job) for name, job in world.ledger.ask(_UNITS) if name in planned}
    for name, table in tables.items():
        for path in table.staged:
            if (name, path.partition("/")[0]) in recorded:
                continue
            job = path[16:32]
            life = world.drew[job]
            if life is last:
                litter = name in world.strikes.littered or drawn.index(job) < world.swept.get(name, 0)
            else:
                litter = life.gone is None or life.gone >= last.began
            if not litter:
                yield f"{path} of {name}, by {life.name}"
