"""Resuming failed sources, as somebody does with `tidegauge resume` while no driver runs.

A source fails for good when its topics are not those that it was bound to, or when its files have lost bytes that it
had seen. It then waits for a person to look in, stop the flow and give the command. That meets the world as a driver
does: it may die, be slow, or hear no answer. The world starts the next driver after it.

    the topics are gone (TG-0811)     resumed once they are there again; the next look finds others
    some output came back that lacks  given up in the same way, as a loss
    records of former ones
    they are others (TG-0554)         resumed with a new incarnation; what some output lacked is accepted as lost
    rows that were received and not   resumed: a standby that lacks them has taken the place of a database's server
    bound are gone (TG-0357)
    a record is bad (TG-0502)         passed over by hand, with `tidegauge skip`, as are all bad ones of its epoch
    a file is gone, was rewritten     resumed once somebody has brought it back, or has let the flow go on without the
    or cut off (`MENDABLE`)           lost lines, which are then in `gaps`; until then it may fail again

Invariant: there are not more new incarnations than there were new upstreams.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegauge.env import Env
from tidegauge.errors.command import FlowNeverRan, RangeNotBound
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.kafka import TopicDeleted
from tidegauge.errors.outputs import OutputBelowIncarnation
from tidegauge.errors.push import PushedEndTakenBack
from tidegauge.errors.running import LossNotAccepted, NothingToResume, UpstreamRecreated
from tidegauge.errors.unions import InputRecreated
from tidegauge.maintenance.resume import resume, skip
from tidegauge.sources.union.places import split_of
from tidegauge.testing.simulation.commands import SimulatedFlow, given
from tidegauge.testing.simulation.harms import MENDABLE
from tidegauge.testing.simulation.ledger import Broken

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["attend", "look_at_files", "resumable"]

_LOOKS: Final = (0.5, 3.0, 15.0)
"""Seconds until somebody looks again."""
_BROUGHT: Final = 0.6
"""How often somebody brings lost files back."""
_PATIENCE: Final = 90.0
"""Seconds that the command is given again and again while another driver has the lease."""


def resumable(world: World) -> dict[str, str]:
    """Return the failed sources that can go on, at the latest when their topics are there, each with its code.

    One whose upstream nobody recreated has lost its log (`overtaken`): nobody lets it begin again.
    """
    anew = (TopicDeleted.code, InputRecreated.code)
    failed = world.ledger.failed()
    return {
        name: code
        for name, code in failed.items()
        if code in anew
        or (code == UpstreamRecreated.code and world.upstreams[name].made_anew)
        or (code == PushedEndTakenBack.code and name in world.ground.facts.replicated)
        or _is_mendable(world, name, code)
        or _is_skippable(world, name, code)
    }


def _is_skippable(world: World, source: str, code: str) -> bool:
    """Whether the records that a source failed of can be told apart from others."""
    return code == RecordUnparsable.code and (
        not world.ledger.since or world.ledger.failed_at(source) > world.ledger.since
    )


def _is_mendable(world: World, source: str, code: str) -> bool:
    return code in MENDABLE and bool(_files(world, source))


def _files(world: World, source: str) -> list[str]:
    """Return the sources of files that a source is, or has as inputs."""
    names = world.unions[source].names if source in world.unions else (source,)
    return [name for name in names if name in world.file_laws.files]


def attend(world: World) -> None:
    """From now on let somebody resume what can go on, for as long as the world is there."""
    if not world.attended:
        world.attended = True
        world.scheduler.begin("operator", lambda: _attend(world))


def _attend(world: World) -> None:
    while not world.closing:
        behind = dict.fromkeys(world.left_behind, OutputBelowIncarnation.code)
        for source, code in {**resumable(world), **behind}.items():
            if world.down or not world.upstreams[source].whole:
                continue
            if code == UpstreamRecreated.code:
                number, made = world.ledger.incarnation(source) + 1, world.upstreams[source].made_anew
                if number > made:
                    said = f"{source} would begin its incarnation {number}, and was recreated {made} times"
                    raise Broken("no source fails without need", said)
            if _is_mendable(world, source, code):
                for name in _files(world, source):
                    _mend(world, name, code)
            bad = code == RecordUnparsable.code
            command = (
                partial(_skip, world=world, source=source) if bad else partial(_resume, source=source, code=code)
            )
            for driver in world.living():
                driver.stop()
            life = given(world, command, patience=_PATIENCE)
            world.scheduler.wait(life.is_gone)
            if life.over and life.error is None:
                world.left_behind.discard(source)
        world.scheduler.sleep(world.random.choice(_LOOKS))


def _mend(world: World, source: str, code: str) -> None:
    """Bring lost files back, or go on without them. Raises `Broken` where nothing was lost."""
    world.file_laws.failed(source, code)
    files = world.file_laws.files[source]
    if files.going_on:  # and the command did not succeed
        return
    if world.random.random() < _BROUGHT:
        files.bring_back()
        look_at_files(world, source)
    else:
        files.going_on = True


def look_at_files(world: World, source: str) -> bool:
    """Note all that somebody has just done to files. Return whether any may have lost lines by now."""
    for said in world.file_laws.said(source):
        world.trace.note(world.clock.monotonic(), world.scheduler.running, said)
    world.file_laws.note(source, in_transaction=world.memory.connection.in_transaction)
    return bool(world.upstreams[source].overtaken)


def _skip(flow: SimulatedFlow, env: Env, *, world: World, source: str) -> None:
    """Pass over the bad records of the epoch at which a source has failed. Raises `Broken` where there are none."""
    if world.ledger.failed().get(source) != RecordUnparsable.code:
        return  # another command did it, and its answer was lost
    if not (found := world.checks.failing(source)):
        said = f"{source} has failed of a bad record at {world.ledger.failed_at(source)}, and there is none"
        raise Broken("no source fails without need", said)
    for place, record in found:
        world.checks.skipped.add((source, place, record.position))
        of = split_of(record.partition)[0].name if source in world.unions else source
        upper = record.position + (len(record.raw) + 1 if flow.spec.sources[of].unit == "bytes" else 1)
        with suppress(RangeNotBound):  # somebody has just compacted its epoch
            skip(flow, source, record.partition, record.position, upper, env=env)


def _resume(flow: SimulatedFlow, env: Env, *, source: str, code: str) -> None:
    anew = code in (UpstreamRecreated.code, InputRecreated.code, OutputBelowIncarnation.code)
    with suppress(NothingToResume, FlowNeverRan):  # another command did it, and its answer was lost
        try:
            resume(flow, source, new_incarnation=anew, env=env)
        except LossNotAccepted:
            resume(flow, source, new_incarnation=anew, accept_loss=True, env=env)
