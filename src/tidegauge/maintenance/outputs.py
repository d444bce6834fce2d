"""What you decide about a flow's outputs while it may be running: to pause one, to limit late ones, to make a
table anew.

Invariant: a decision is durable when the call returns, also while the flow is driven. A driver
hears of it within seconds (`flow.deciding`), and one that starts later finds it. An output is dropped by the
driver (`flow.dropping`); while nobody drives the flow, by the command. An output's code is accepted while nobody
drives the flow.

What a paused output does to the others: nothing. It does hold back what upstream is told: a position is acknowledged
once every output holds it, paused ones too, so upstream keeps what a paused output lacks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tidegauge.env import Env
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.outputs import CannotReplace, CodeChanged, OutputMoved
from tidegauge.errors.running import CannotPause
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.flow.belonging import bound_at, check, table_of
from tidegauge.flow.changing import accepted
from tidegauge.flow.deciding import pausable
from tidegauge.flow.dropping import finish_drop, removable
from tidegauge.flow.replacing import concluded, hindrance, withdrawn
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.code import OutputCode, changes, code_of
from tidegauge.looking.inspect import opened
from tidegauge.maintenance.resume import leased
from tidegauge.remap.store import (
    Decision,
    Loaded,
    LoadedOutput,
    PauseOutput,
    Rate,
    ReplaceOutput,
    ResumeOutput,
    SetRate,
    Store,
    check_rate,
)
from tidegauge.sinks.protocol import OutputId, Replaceable

__all__ = [
    "AcceptedCode",
    "AddedOutput",
    "DroppedOutput",
    "OutputDecision",
    "RateDecision",
    "ReplacementDecision",
    "add",
    "drop",
    "from_here",
    "limit",
    "pause",
    "rebuild",
    "replace",
    "unpause",
]


@dataclass(frozen=True, slots=True)
class OutputDecision:
    """What stands of an output after a decision about it.

    changed: whether it was another one before. reasons: why it is paused; it goes on when there is none. running: the
    driver that hears of it, "" while nobody drives the flow.
    """

    flow: str
    output: str
    changed: bool
    reasons: tuple[str, ...]
    running: str


@dataclass(frozen=True, slots=True)
class RateDecision:
    """How many rows a second are read for late outputs at most. See `OutputDecision`."""

    flow: str
    rate: Rate
    changed: bool
    running: str


@dataclass(frozen=True, slots=True)
class AddedOutput:
    """An output that the flow's driver is to take in.

    changed: false if the flow runs with it, or has run with it before. running: the driver that hears of it, "" while
    nobody drives the flow: then the next run begins with it.
    """

    flow: str
    output: str
    changed: bool
    running: str


@dataclass(frozen=True, slots=True)
class DroppedOutput:
    """An output that the store knows no more, or that a driver is about to drop.

    declared: whether it is still in the flow, and begins anew with the next run. table: whether its table goes, too.
    running: the driver that drops it, "" where it is dropped already.
    """

    flow: str
    output: str
    declared: bool
    table: bool = False
    running: str = ""


@dataclass(frozen=True, slots=True)
class AcceptedCode:
    """An output that goes on with its present code, from an epoch on. changes: in words, none if it had that code."""

    flow: str
    output: str
    epoch: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplacementDecision:
    """The rows of an output are made again by its present code, and then change places with the old ones at once.

    changes: of the code, in words; none if it is the same. running: the driver that hears of it, "" while nobody
    drives the flow.
    """

    flow: str
    output: str
    changes: tuple[str, ...]
    running: str


def pause(flow: Flow, output: str, *, env: Env | None = None) -> OutputDecision:
    """Begin nothing more for an output: the others go on and are published without it.

    The flow may be running, and need not have run with this output yet. Raises `CannotPause` for an output of a
    source that pushes, `UnknownName`, `FlowNeverRan`.
    """
    spec = flow.spec
    if output in spec.outputs and not pausable(spec, output):
        raise CannotPause(output=output, source=spec.outputs[output].source)
    return _decided(spec, output, PauseOutput(output), env or Env())


def unpause(flow: Flow, output: str, *, env: Env | None = None) -> OutputDecision:
    """Take `pause` back: the output goes on where it was, as a late one, once no other reason is left.

    Raises `UnknownName`, `FlowNeverRan`.
    """
    return _decided(flow.spec, output, ResumeOutput(output), env or Env())


def limit(flow: Flow, rate: Rate, *, env: Env | None = None) -> RateDecision:
    """Read at most `rate` rows a second for the late outputs of a flow, all together; None for no limit.

    0 pauses them; "auto" reads as fast as the live outputs allow. These are not limited. The flow may be running.
    Raises `FlowNeverRan`, `InvalidArgument`.
    """
    spec = flow.spec
    if rate is not None:
        check_rate(rate)
    with opened(spec, env or Env()) as store:
        before = store.decisions(spec.name)
        now = store.decide(spec.name, SetRate(rate))
        return RateDecision(spec.name, rate, now.number != before.number, store.holder(spec.name))


def add(flow: Flow, output: str, *, env: Env | None = None) -> AddedOutput:
    """Have a new output of this flow taken in by the driver that runs it, without a restart.

    Within seconds the driver loads the flow from where it got it: from its file, or from the object that it was
    started with. If nothing else of it has changed, it goes over to it: finishes the work under way, and goes on with
    the new output as a late one. Otherwise it goes on as before, and says why. If nobody runs the flow, the next run
    begins with the output.

    Raises `UnknownName` for one that this flow lacks, `FlowNeverRan`.
    """
    spec = flow.spec
    spec.output(output)
    with opened(spec, env or Env()) as store:
        known = store.load(spec.name).outputs.get(output)
        before = store.decisions(spec.name).number
        running = store.holder(spec.name)
        if known is not None or not running:
            return AddedOutput(spec.name, output, changed=False, running=running)
        now = store.decide(spec.name, PauseOutput(output, "add"))
        return AddedOutput(spec.name, output, now.number != before, running)


def drop(flow: Flow, output: str, *, table: bool = False, env: Env | None = None) -> DroppedOutput:
    """Forget an output: its plan and staged files, its holds, its start, its failure and its pauses.

    table: remove its table, too, with its folder. Otherwise that stays, and an output of this name goes on from what
    it holds. A new output of its name begins as any new one does; so does one that is still in the flow, with the
    next run. The flow may be running: its driver then drops the output within seconds, and goes on with the others.

    Raises `TableNotRemovable` and as `Sink.open`, having decided nothing; `UnknownName`, `FlowNeverRan`.
    """
    spec = flow.spec
    env = env or Env()
    with opened(spec, env) as store:
        _check_known(spec, store, output)
        if table:
            owner = OutputId(spec.name, output, store.load(spec.name).flow.incarnation)
            removable(spec, output).check_removable(owner)
        known = output in spec.outputs
        store.decide(spec.name, PauseOutput(output, "drop table" if table else "drop"))
        try:
            with leased(store, spec.name, env) as lease:
                drops = store.decisions(spec.name).drops
                if output in drops:  # or a driver has dropped it since
                    finish_drop(spec, store, lease, output, table=drops[output])
                return DroppedOutput(spec.name, output, known, table)
        except FlowAlreadyRunning:
            return DroppedOutput(spec.name, output, known, table, store.holder(spec.name))


def from_here(flow: Flow, output: str, *, env: Env | None = None) -> AcceptedCode:
    """Let an output go on with the code that it has in this flow, from the first epoch that its table lacks.

    The rows before that stay unchanged. The epoch is kept, and `outputs` shows it. It takes back `replace` and
    `rebuild`, as long as the old rows are there. Not while the flow runs: raises
    `FlowAlreadyRunning`, `UnknownName`, `OutputMoved`, `FlowNeverRan`, and what looking at the table raises.
    """
    spec = flow.spec
    plan, env = spec.output(output), env or Env()
    with opened(spec, env) as store, leased(store, spec.name, env) as lease:
        loaded = concluded(spec, store, lease, store.load(spec.name))
        if output not in loaded.outputs:
            raise UnknownName(kind="output", name=output, known=sorted(loaded.outputs))
        _check_source(spec, loaded, output)
        table, known = table_of(spec, output, loaded), loaded.outputs[output]
        check(store, spec, output, table, bound=bound_at(store, spec.name, [table]))
        upper, now = known.reached(table.upper), code_of(plan)
        found = accepted(known.codes, now, upper=upper, at=env.now())
        replacement = loaded.decisions.replacements.get(output)
        # Before the store knows of it: a driver that has slept may be about to commit rows of the old code.
        if found.changes and isinstance(table, Replaceable) and table.upper:
            table.withdraw(_edition(env))
        elif replacement is not None:
            withdrawn(table, replacement)
        if replacement is not None:
            store.end_replacement(lease, replacement, found.records if found.changes else None)
        elif found.changes:
            store.record_codes(lease, {output: found.records})
        return AcceptedCode(spec.name, output, upper, found.changes)


def replace(flow: Flow, output: str, *, env: Env | None = None) -> ReplacementDecision:
    """Have all rows of an output made again by the code that it has in this flow.

    A late output makes them, from where the table begins: the old rows stay unchanged, and visible, until one
    commit takes them out and puts all of the new ones in. The flow may be running: its driver begins with it within
    seconds if it has this code; otherwise the next one does that has. Once more, it begins from the start.

    Raises `CannotReplace`, `OutputMoved`, `UnknownName`, `FlowNeverRan`, and what looking at the table raises;
    nothing is decided then.
    """
    spec = flow.spec
    plan, env = spec.output(output), env or Env()
    with opened(spec, env) as store:
        known = _replaceable(spec, store, output).codes
        store.decide(spec.name, ReplaceOutput(output, _edition(env), code_of(plan).encode()))
        before = OutputCode.decode(known[-1].code) if known else None
        found = () if before is None else changes(before, code_of(plan))
        return ReplacementDecision(spec.name, output, found, store.holder(spec.name))


def rebuild(flow: Flow, output: str, *, env: Env | None = None) -> ReplacementDecision:
    """Have all rows of an output made again by unchanged code, as `replace` does: after a library was corrected, say.

    Raises `CodeChanged` for code that has changed, and as `replace`.
    """
    spec = flow.spec
    plan, env = spec.output(output), env or Env()
    with opened(spec, env) as store:
        loaded = store.load(spec.name)
        known = loaded.outputs.get(output)
        if known is not None:
            _check_source(spec, loaded, output)
        for last in () if known is None else known.codes[-1:]:
            before = OutputCode.decode(last.code)
            if before is not None and (found := changes(before, code_of(plan))):
                upper, said = table_of(spec, output, loaded).upper, "; ".join(found)
                raise CodeChanged(output=output, since=last.epoch, epoch=upper, changes=said, others="")
    return replace(flow, output, env=env)


def _edition(env: Env) -> str:
    """Return a name for new rows whose first digits tell it from others, however the world draws its names."""
    return hashlib.blake2b(env.unique().encode(), digest_size=16).hexdigest()


def _replaceable(spec: FlowSpec, store: Store, output: str) -> LoadedOutput:
    """Return an output whose table can be replaced, as the store knows it. Raises `CannotReplace`."""
    loaded = store.load(spec.name)
    if output not in loaded.outputs:
        raise CannotReplace(output=output, why="it has not run yet, so there are no rows to replace")
    if output in loaded.decisions.drops:
        raise CannotReplace(output=output, why="it is to be dropped, and begins anew once that is done")
    _check_source(spec, loaded, output)
    table = table_of(spec, output, loaded)
    check(store, spec, output, table, bound=bound_at(store, spec.name, [table]))
    if not isinstance(table, Replaceable):
        sink = type(spec.outputs[output].sink).__name__
        raise CannotReplace(output=output, why=f"{sink} cannot take out what it was given, all in one commit")
    if not table.upper:
        raise CannotReplace(output=output, why="its table holds nothing: it begins with the code that it has")
    if why := hindrance(spec, loaded, output):
        raise CannotReplace(output=output, why=why)
    return loaded.outputs[output]


def _check_source(spec: FlowSpec, loaded: Loaded, output: str) -> None:
    """Raise `OutputMoved` for an output that the flow has from another source than its store."""
    before, now = loaded.outputs[output].source, spec.outputs[output].source
    if before != now:
        raise OutputMoved(output=output, before=before, now=now)


def _decided(spec: FlowSpec, output: str, decision: Decision, env: Env) -> OutputDecision:
    with opened(spec, env) as store:
        _check_known(spec, store, output)
        before = store.decisions(spec.name)
        now = store.decide(spec.name, decision)
        reasons = tuple(sorted(now.paused.get(output, ())))
        return OutputDecision(spec.name, output, now.number != before.number, reasons, store.holder(spec.name))


def _check_known(spec: FlowSpec, store: Store, output: str) -> None:
    """Raise `UnknownName` for an output that is neither in the flow nor in its store."""
    if output not in spec.outputs:
        stored = store.load(spec.name)
        if output not in stored.outputs and output not in stored.decisions.paused:
            raise UnknownName(kind="output", name=output, known=sorted(stored.outputs.keys() | spec.outputs.keys()))
