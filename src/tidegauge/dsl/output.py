"""The plan of an output: what a user says of it, held against the sources and outputs that were declared before.

Invariant: a plan is made whole or refused, before anything is opened; it refers to nothing that comes after it.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> numbers = flow.source("numbers", tg.GeneratorSource(columns="id long"))
>>> plan = planned(flow, "ids", numbers, tg.ParquetSink("lake/ids"), patience=60)
>>> plan.source, plan.patience, plan.after
('numbers', 60.0, ())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidegauge.dsl.past import From, check_past
from tidegauge.dsl.stream import RowStream
from tidegauge.errors.flow import ForeignStream, InvalidArgument, NotDeclaredBefore
from tidegauge.errors.outputs import PastNotThere
from tidegauge.errors.push import UnknownStream
from tidegauge.errors.running import CannotPause
from tidegauge.errors.steps import NoOrderOfRows
from tidegauge.evolution import EVOLUTIONS, Evolution
from tidegauge.flow.spec import Flow
from tidegauge.job.functions import columns_of
from tidegauge.job.plan import Changelog, OutputPlan
from tidegauge.operations import carries
from tidegauge.remap.stamps import OutputStamps, Stamping
from tidegauge.remap.start import OutputStart, Starting
from tidegauge.sinks.cadence import Cadence, CommitEvery
from tidegauge.sinks.protocol import Sink
from tidegauge.sources.protocol import Source
from tidegauge.sources.push.source import PushedSource, streams_of

__all__ = ["planned"]

_LONGEST: Final = 1e10
"""Seconds, 300 years: no table waits longer."""


def planned(
    flow: Flow,
    name: str,
    stream: RowStream,
    sink: Sink,
    *,
    start: Starting | From | None = None,
    after: str | Sequence[str] = (),
    timestamps: Stamping = "faithful",
    patience: float | None = None,
    commit_every: CommitEvery | None = None,
    schema: Evolution = "strict",
) -> OutputPlan:
    """Return the plan of an output; the options are those of `Dataflow.sink`.

    Raises `InvalidArgument`, `ForeignStream`, `UnknownStream`, `PastNotThere`, `NotDeclaredBefore`, `CannotPause`,
    `NoOrderOfRows`, and what a sink raises that cannot apply operations.
    """
    if not isinstance(stream, RowStream):
        raise InvalidArgument(parameter="stream", value=stream, expected="a stream of this flow")
    if stream.flow is not flow:
        raise ForeignStream(stream=repr(stream), owner=stream.flow.spec.name, flow=flow.spec.name)
    if not isinstance(sink, Sink):
        raise InvalidArgument(parameter="sink", value=sink, expected="a sink such as tg.DeltaSink(...)")
    sources, outputs = flow.spec.sources, flow.spec.outputs
    pushes = isinstance(sources[stream.source], PushedSource)
    if stream.channel == "rows" and (known := streams_of(sources[stream.source])):
        raise UnknownStream(source=stream.source, stream="", known=", ".join(known))
    past: OutputPlan | None = None
    if isinstance(start, From):
        if (past := outputs.get(start.output)) is None:
            why = f"no such output is declared before it, only {', '.join(outputs) or 'none'}"
            raise PastNotThere(output=name, table=start.output, why=why)
        begin = past.start
    else:
        begin = None if start is None else OutputStart.of(start)
    stamps = OutputStamps.of(timestamps)
    before = _before(name, after, outputs)
    kept = _patience(patience)
    if pushes and (before or kept is not None):
        raise CannotPause(output=name, source=stream.source)
    cadence = None if commit_every is None else Cadence.of(commit_every)
    if schema not in EVOLUTIONS:
        raise InvalidArgument(parameter="schema", value=schema, expected="'strict', 'add' or 'evolve'")
    plan = OutputPlan(
        name,
        stream.source,
        stream.channel,
        stream.steps,
        sink,
        begin,
        before,
        stamps,
        patience=kept,
        past=None if past is None else past.name,
        cadence=cadence,
        evolution=schema,
    )
    if plan.ordered and pushes:
        raise NoOrderOfRows(
            output=name,
            step="dedupe",
            why=f"source {stream.source!r} pushes its records, and they come in another order after a restart",
            instead="keep one row of each key with a sink that has envelope='upsert'",
        )
    if past is not None:
        check_past(plan, past, pushed=pushes, operating=_operates(past, sources))
    if _operates(plan, sources):
        plan.check_applied()
    return plan


def _before(name: str, after: object, outputs: Mapping[str, OutputPlan]) -> tuple[str, ...]:
    """Return the outputs that another one comes after."""
    known = (after,) if isinstance(after, str) else after
    if not isinstance(known, list | tuple) or not all(isinstance(one, str) for one in known):
        raise InvalidArgument(parameter="after", value=after, expected="the name of an output, or several")
    for one in known:
        if one not in outputs:
            raise NotDeclaredBefore(output=name, after=one, known=list(outputs))
    return tuple(dict.fromkeys(known))


def _patience(seconds: object) -> float | None:
    """Return for how long upstream keeps what an output lacks that does not go on."""
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < _LONGEST:
        raise InvalidArgument(parameter="patience", value=seconds, expected="a number of seconds from 0 on")
    return float(seconds)


def _operates(plan: OutputPlan, sources: Mapping[str, Source]) -> bool:
    """Whether it is certain that an output gets operations; otherwise it shows when the flow runs."""
    declared = sources[plan.source].schema
    kept = plan.channel != "errors" and not any(isinstance(step, Changelog) for step in plan.steps)
    return kept and declared is not None and carries(columns_of(declared, plan.channel))
