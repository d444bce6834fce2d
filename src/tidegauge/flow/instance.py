"""An instance of a flow: a worker with the flow rendered into it, as it was opened, and what goes with that worker.

A run has one instance after the other. When something comes along that only opening looks at, the present instance is
closed, and the flow is opened anew from the store and its tables.

Invariant: an instance that is closed is simply abandoned. No capability is released, so nothing that it did not
finish counts as done; its threads begin nothing new; and of a job of it that is under way nobody commits anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Final

import pyarrow as pa

from tidegauge.dataflow import Worker
from tidegauge.env import Env, Spawn
from tidegauge.errors.outputs import OutputLeftBehind
from tidegauge.flow.away import Absent
from tidegauge.flow.belonging import present
from tidegauge.flow.board import Board
from tidegauge.flow.deciding import Deciding
from tidegauge.flow.following import FollowedFlow
from tidegauge.flow.opening import Opened
from tidegauge.flow.polling import Polling
from tidegauge.flow.publication import Publications
from tidegauge.flow.pushing import Pushing
from tidegauge.flow.render import render
from tidegauge.flow.stalls import Stalls
from tidegauge.job.perform import OutputSchemas, performer
from tidegauge.job.plan import Engine
from tidegauge.remap.round import Requests
from tidegauge.sinks.backlog import Backlog
from tidegauge.sinks.protocol import Finishing, Table, job_mark
from tidegauge.sinks.working import Working

__all__ = ["Instance", "RunSetup"]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """What all instances of a run have in common.

    service: whether the run goes on when it has caught up. late_limit: see `Runner`. behind: the outputs that
    upstream left behind in this run. owner: the flow that this one follows. spawn, commit, tell: run jobs, commits
    and acknowledgements beside the worker. anew: has the flow opened anew. columned: hears of further columns of a
    source, and has it opened anew, too.
    """

    engine: Engine
    env: Env
    watch: Callable[[Board], None] | None
    service: bool
    late_limit: Callable[[str], int]
    schemas: OutputSchemas
    requests: Requests
    publications: Publications
    polling: Polling
    absent: Absent
    deciding: Deciding
    behind: dict[str, OutputLeftBehind]
    owner: FollowedFlow | None
    spawn: Spawn
    commit: Spawn
    tell: Spawn
    anew: Callable[[], None]
    columned: Callable[[str, pa.Schema], None]


class Instance:
    """The flow as `found`, in a worker of its own. `close` it in any case.

    news: what the flow is told once. begins: whether it may begin anything new, until `cease`.
    """

    def __init__(self, found: Opened, setup: RunSetup, *, news: tuple[str, ...], begins: bool) -> None:
        self.tables: Final[Mapping[str, Table]] = found.tables
        self.pushing: Final = Pushing(found.spec, behind=setup.behind, anew=setup.anew)
        self._going: Final = Event()  # its own: threads of an instance before may still ask theirs
        if begins:
            self._going.set()
        self.worker: Final = Worker(monotonic=setup.env.monotonic)
        try:
            self._render(found, setup, news)
        except BaseException:
            self.close()
            raise

    def _render(self, found: Opened, setup: RunSetup, news: tuple[str, ...]) -> None:
        flow, env, deciding = found.spec, setup.env, setup.deciding
        for table in found.tables.values():
            if isinstance(table, Working):
                table.work_by(setup.engine.work)
        self.stalls = Stalls(found.stalls, found.store, found.lease, env=env)
        cadences = {plan.name: plan.cadence for plan in flow.outputs.values() if plan.cadence is not None}
        self.backlog = Backlog(env.monotonic, cadences if setup.service else {})
        pausing, pacing = deciding.begin(flow, found.decisions, late=found.late)
        self.board = Board(
            found.timeline,
            units={name: source.unit for name, source in flow.sources.items()},
            plans=flow.outputs,
            origins={name: flow.origins(name) for name in flow.outputs},
            uppers={**dict.fromkeys(found.away, found.published), **found.uppers},
            published=found.published,
            failed=found.failed,
            retried=found.outstanding,
            fills=found.fills,
            taking=found.taking,
            replacing=found.replacing,
            paused=deciding.paused,
            news=news,
            env=env,
            redaction=found.lease.redaction,
            publications=setup.publications,
            changed=setup.watch,
        )
        setup.absent.note(found.away, found.held, found.filling, self.board.stalled)
        deciding.follow(self.board)
        render(
            found,
            self.worker,
            perform=performer(
                flow.outputs,
                flow.sources,
                setup.engine,
                env,
                mark=job_mark(found.lease.incarnation),
                passed=found.passed,
                lacking=found.lacking,
                tables=found.tables,
                schemas=setup.schemas,
                pieces=self.pushing.pieces,
                stamps={name: start.stamp for name, start in found.starts.items()},
                present=partial(present, flow, found.lease.incarnation),
                since=found.since,
            ),
            board=self.board,
            env=env,
            spawn=setup.spawn,
            commit=setup.commit,
            tell=setup.tell,
            ticking=self._going.is_set,
            requests=setup.requests,
            pushing=self.pushing,
            polling=setup.polling,
            pausing=pausing,
            backlog=self.backlog,
            pacing=pacing,
            service=setup.service,
            late_limit=setup.late_limit,
            owner=setup.owner,
            anew=setup.anew,
            columned=setup.columned,
            rowwise=frozenset(
                name
                for name in found.fills
                if (schema := found.timeline.schema(flow.outputs[name].source)) is not None
                and setup.schemas.rowwise(flow.outputs[name], schema)
            ),
        )

    @property
    def telling(self) -> bool:
        """Whether a source that pushes is being told something."""
        return any(one.busy for one in self.pushing.readers.values())

    def cease(self) -> None:
        """Begin nothing new."""
        self._going.clear()

    def close(self) -> None:
        """Abandon the worker, close the connections, and wait for what the tables do beside their commits."""
        self.cease()
        self.pushing.close()
        for table in self.tables.values():
            if isinstance(table, Finishing):
                table.end()
