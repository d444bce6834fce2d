"""Rendering: a flow becomes a timely dataflow, of one scope for each source and one for the epochs.

```text
 scope of each source (times: frontiers)        scope of the flow (times: epochs)
   reader ── news ─────────────────────────────► remap ── spans ────────────────────────► stage
     ▲ ▲                            nothing new ► │ ▲                                     │  │ staged, per output
     │ └─────────── news ──────────── sweep ◄─────┘ └───────────── failures ──────────────┘  ▼
     │                                      asked                                         persist (each output)
     └──────────── acknowledgements ──────────── resumption ◄── publish ◄── committed ───────┘
```

What crosses between scopes is captured, batches alone, and drained on the other side: nobody there asks how far the
other scope has come.


Sources that push have another road, which joins this one at stage (`pushing`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

import pyarrow as pa

from tidegauge.backfill.plan import unit_of
from tidegauge.backfill.rate import Pacing
from tidegauge.dataflow import INT, EventQueue, Stream, Worker
from tidegauge.env import Env, Spawn
from tidegauge.errors.base import Transient
from tidegauge.flow.away import waited_for
from tidegauge.flow.belonging import SeenTables
from tidegauge.flow.board import Board
from tidegauge.flow.columns import scouted_sources
from tidegauge.flow.following import FollowedFlow, Followers, hold
from tidegauge.flow.opening import Opened
from tidegauge.flow.polling import Polling
from tidegauge.flow.pushing import Pushing
from tidegauge.flow.replacing import codes_after
from tidegauge.flow.stage import StageSetup, stage
from tidegauge.flow.telling import OncePerSpan, TellingCommits
from tidegauge.job.durable import Losses, OutputFailures
from tidegauge.job.perform import Performer
from tidegauge.remap.follow import FollowSetup, follow
from tidegauge.remap.frontier import GAUGE
from tidegauge.remap.operator import RemapSetup, remap
from tidegauge.remap.round import Failure, Requests
from tidegauge.sinks.backlog import Backlog
from tidegauge.sinks.patience import Patience
from tidegauge.sinks.pausing import Pausing
from tidegauge.sinks.persist import Committed, PersistSetup, persist
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.publish import publish, resumption
from tidegauge.sources.reader import reader
from tidegauge.sources.scouting import scouted
from tidegauge.sources.sweep import SweepSetup, backoff, sweep

__all__ = ["render"]


def render(
    flow: Opened,
    worker: Worker,
    *,
    perform: Performer,
    board: Board,
    env: Env,
    spawn: Spawn,
    commit: Spawn,
    tell: Spawn,
    ticking: Callable[[], bool],
    requests: Requests,
    pushing: Pushing,
    polling: Polling,
    pausing: Pausing,
    backlog: Backlog,
    pacing: Pacing,
    service: bool,
    late_limit: Callable[[str], int],
    owner: FollowedFlow | None,
    anew: Callable[[], None],
    columned: Callable[[str, pa.Schema], None],
    rowwise: frozenset[str],
) -> None:
    """Build the flow's dataflows in the worker. `ticking` says whether to bind and stage anything new.

    spawn, commit, tell: run probes and jobs, commits, and acknowledgements, beside the worker.
    requests: the ticks that are asked for; they are taken from now on. pushing: the sources that push.
    polling: the attendants of sources.
    pausing: the outputs for which nothing is done at present, by choice. backlog: what waits for its commit, and when
    that is due. pacing: when jobs of late outputs may begin.
    service, late_limit, rowwise: see `StageSetup`. owner: whom the flow follows; it has no readers then. anew: has it
    opened again. columned: hears which further columns a look has found of a source, and has the flow opened again.
    """
    spec, timeline = flow.spec, flow.timeline
    plans = {name: plan for name, plan in spec.outputs.items() if name in flow.tables}
    uppers = flow.uppers
    limits = {name: flow.failed[plan.source].epoch for name, plan in plans.items() if plan.source in flow.failed}
    units = {name: source.unit for name, source in spec.sources.items()}
    going_on = [n for n in spec.sources if n not in flow.failed and not timeline.tables[n].frontier.sealed]
    live = [name for name in going_on if name not in spec.derived]
    news = {name: EventQueue(INT) for name in live if name not in pushing.pieces and owner is None}
    answers = EventQueue(GAUGE)
    acknowledgements = {name: EventQueue(INT) for name in news}
    failures = EventQueue(INT)

    output_failures = OutputFailures(flow.store, flow.lease, known=flow.outstanding, watch=board.output_failed)
    behind = {name: error for name, error in pushing.behind.items() if name in plans}
    for name, error in behind.items():
        output_failures.failed(name, uppers[name], error)
    filling = set(flow.fills)
    empty = {name for name, table in flow.tables.items() if not table.upper}
    first = {name: flow.starts[name].epoch if name in flow.starts else 0 for name in flow.tables}
    held = {name: range(first[name], table.upper) for name, table in flow.tables.items()}
    seen = SeenTables(flow.store, flow.lease, empty=empty)

    taking_on = scouted_sources(spec) & set(live)
    scouts = {
        name: partial(scouted, name, spec.sources[name], passed_over=flow.passed_over.get(name))
        for name in taking_on & news.keys()
    }
    history = OncePerSpan(partial(flow.store.history, spec.name), env)

    def record_failure(failure: Failure) -> None:
        flow.store.record_failure(flow.lease, failure.source, failure.epoch, failure.error)

    def minted_at(epoch: int) -> datetime | None:
        return next((one.minted_at for one in flow.store.epochs(spec.name, first=epoch, last=epoch)), None)

    def discard(output: str, files: tuple[StagedFile, ...]) -> None:
        with suppress(OSError, Transient):  # litter does no harm, and the next opening sweeps it
            flow.tables[output].discard(files)

    def reach(lacks: int) -> None:
        with env.effect("acknowledge"):
            flow.lease.confirm()
            hold(spec, flow.store, lacks)

    for name in news:
        with worker.dataflow(f"{spec.name}/{name}", order=GAUGE) as scope:
            reader(
                scope,
                name,
                spec.sources[name],
                news=news[name],
                acknowledgements=acknowledgements[name],
                bound=partial(timeline.bound, name),
                confirm=flow.lease.confirm,
                env=env,
                spawn=tell,
            ).capture(answers, progress=False)

    pushing.connect(
        worker,
        flow,
        live=live,
        limits=limits,
        env=env,
        spawn=spawn,
        going=ticking,
        taking_on=taking_on,
        hurry=None if service else requests.ask,
    )
    acknowledgements |= pushing.acknowledgements

    with worker.dataflow(spec.name, order=INT) as scope:
        if owner is None:
            bindings = remap(
                scope,
                RemapSetup(
                    timeline=timeline,
                    store=flow.store,
                    lease=flow.lease,
                    env=env,
                    policy=spec.policy,
                    requests=requests,
                    required=frozenset(s for s in spec.required if not timeline.tables[s].frontier.sealed),
                    units=units,
                    resume=flow.resume,
                    live=live,
                    answers=answers,
                    record_failure=record_failure,
                    failures=failures,
                    published=lambda: board.published,
                    held=board.held,
                    ticking=ticking,
                    watcher=board,
                    columned={name: partial(columned, name) for name in taking_on},
                    derived={name: source for name, source in spec.derived.items() if name in going_on},
                ),
            )
            sweep(
                bindings.asked,
                SweepSetup(
                    sources=spec.sources,
                    readers=news,
                    pushed=pushing.answers,
                    answers=answers,
                    env=env,
                    spawn=spawn,
                    going=ticking,
                    scouts=scouts,
                    attendants=polling.attendants,
                ),
            )
            spans = bindings.spans
        else:
            spans = follow(
                scope,
                FollowSetup(
                    timeline=timeline,
                    store=flow.store,
                    lease=flow.lease,
                    env=env,
                    policy=spec.policy,
                    requests=requests,
                    following=owner.following,
                    incarnation=owner.incarnation,
                    configs=owner.configs,
                    resume=flow.resume,
                    live=live,
                    failures=failures,
                    ticking=ticking,
                    watcher=board,
                    anew=anew,
                ),
            )
        pushing.reclock(spans, flow)
        staging = stage(
            spans,
            StageSetup(
                timeline=timeline,
                plans=plans,
                units=units,
                uppers=uppers,
                late=flow.late,
                fills=flow.fills,
                old=flow.old,
                rowwise=rowwise,
                record=lambda output, unit: flow.store.add_unit(flow.lease, output, unit_of(unit)),
                limits=limits,
                perform=perform,
                record_failure=record_failure,
                failures=output_failures,
                losses=Losses(flow.store, flow.lease, spec.name, spec.sources, now=env.now),
                discard=discard,
                backlog=backlog,
                pausing=pausing,
                held=held,
                taking=flow.taking,
                pacing=pacing,
                service=service,
                late_limit=late_limit,
                spawn=spawn,
                env=env,
                going=ticking,
                board=board,
                pieces=pushing.received,
            ),
        )
        staging.failures.capture(failures, progress=False)
        tellers = {
            name: TellingCommits(
                name, history, flow.store, flow.lease, lossless=flow.lossless, start=flow.starts.get(name)
            )
            for name in staging.spans
        }

        def passed(output: str, upper: int) -> None:
            held[output] = range(first[output], upper)
            if output in output_failures.known:
                output_failures.passed(output, upper)
            if output in empty:
                seen.passed(output, upper)
            if output in filling:
                _end_fill(flow, output)
                filling.remove(output)
            tellers[output].note()

        commits: dict[str, Stream[Committed]] = {
            name: persist(
                spans,
                PersistSetup(
                    output=name,
                    table=flow.tables[name],
                    history=tellers[name].history,
                    carried=tellers[name].carried,
                    env=env,
                    spawn=commit,
                    confirm=flow.lease.confirm,
                    backoff=backoff,
                    backlog=backlog,
                    pausing=pausing,
                    passed=partial(passed, name),
                    failed=partial(output_failures.failed, name),
                    committed=board.committed,
                    stalled=board.stalled,
                ),
            )
            for name, spans in staging.spans.items()
        }
        awaited = {name: waited_for(scope, name) for name in sorted(flow.away.keys() - flow.filling)}
        published = publish(
            commits | awaited,
            scope,
            late=flow.late,
            pausing=pausing,
            store=flow.store,
            lease=flow.lease,
            timeline=timeline,
            published=flow.published,
            env=env,
            watch=board.publish,
        )
        told = resumption(
            published,
            scope.concatenate([*commits.values(), *awaited.values()]),
            timeline=timeline,
            readers={name: plan.source for name, plan in spec.outputs.items()},
            derived=spec.derived,
            uppers={**dict.fromkeys(flow.away, flow.since), **uppers},
            since=flow.published,
            followed=Followers(spec.name, flow.store, flow.lease, since=flow.since).lacked,
            reach=reach if owner is not None else None,
            patience=Patience(
                {name: plan.patience for name, plan in plans.items() if plan.patience is not None}
                | dict.fromkeys(behind, 0.0),  # upstream has forgotten already what they lack
                idle=lambda: pausing.outputs | output_failures.ended.keys(),
                minted_at=minted_at,
                now=env.now,
            ),
        )
        for name, frontiers in told.items():
            if name in acknowledgements:
                frontiers.capture(acknowledgements[name], progress=False)


def _end_fill(flow: Opened, output: str) -> None:
    """Forget the plan of an output whose table holds its past by now, and that it was to replace another."""
    if (found := flow.replacing.get(output)) is None:
        flow.store.end_backfill(flow.lease, output)
    else:
        start = flow.starts.get(output)
        codes = codes_after(found, 0 if start is None else start.epoch)
        flow.store.end_replacement(flow.lease, found, codes)
