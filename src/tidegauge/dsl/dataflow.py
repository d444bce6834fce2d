"""What users write: sources and sinks, joined by streams (`stream`) into a flow.

A flow is a description. Nothing is opened, read or written before `run`. Sources and outputs are known by the names
given here (law 8): rename one and it is another one.

>>> import tidegauge as tg
>>> flow = tg.Dataflow("shop", store="sqlite:///shop.db")
>>> orders = flow.source("orders", tg.FileSource("orders/*.jsonl", format=tg.Json("id long, amount double")))
>>> flow.sink("large_orders", orders.filter("amount > 100").select("id"), tg.DeltaSink("lake/large_orders"))
>>> flow
Dataflow('shop': orders -> large_orders)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, overload
from weakref import WeakValueDictionary

import pyarrow as pa

from tidegauge.dsl.input import declared
from tidegauge.dsl.output import planned
from tidegauge.dsl.past import From
from tidegauge.dsl.shared import Shared
from tidegauge.dsl.stream import RowStream
from tidegauge.dsl.union import Union
from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument, InvalidName, NameTaken, TableTaken
from tidegauge.errors.running import CannotTick
from tidegauge.evolution import Evolution
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.plan import Engine, OutputPlan
from tidegauge.looking.reports import of_flow
from tidegauge.remap.policy import Policy, as_policy
from tidegauge.remap.round import Requests
from tidegauge.remap.stamps import Stamping
from tidegauge.remap.start import Starting
from tidegauge.remap.store import Following
from tidegauge.sinks.cadence import CommitEvery
from tidegauge.sinks.protocol import Sink
from tidegauge.sources.protocol import Source
from tidegauge.sources.push.protocol import PushSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegauge.dsl.listening import EpochListener
    from tidegauge.dsl.started import FlowRun
    from tidegauge.flow.board import Board, OutputCondition
    from tidegauge.flow.runner import Outcome, Runner
    from tidegauge.looking.asof import AsOf, Positions
    from tidegauge.looking.envelopes import Enveloping
    from tidegauge.looking.reports import OutputReport
    from tidegauge.looking.subscription import ChangeFeed, Subscriber

__all__ = ["Dataflow"]

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,127}")


def _named(kind: str, name: str) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidName(kind=kind, name=str(name))
    return name


class Dataflow:
    """A named set of sources and outputs that share one timeline of epochs, kept in one store.

    Args:
        name: the flow's identity in the store and in its tables.
        store: where the timeline lives, such as `sqlite:///shop.db`.
        tick: when to mint epochs: a number of seconds between ticks, `tg.Every` or `tg.Manual`. 0.5, so that rows
            show up within a second; an idle tick costs nothing downstream.
    """

    def __init__(self, name: str, *, store: str, tick: float | Policy = 0.5) -> None:
        if not isinstance(store, str) or "://" not in store:
            raise InvalidArgument(parameter="store", value=store, expected="a database URL like sqlite:///shop.db")
        self.policy: Final = as_policy(tick)
        self.name: Final = _named("flow", name)
        self.store: Final = store
        self._requests: Final = Requests(name)
        self._sources: dict[str, Source] = {}
        self._following: Following | None = None
        self._required: set[str] = set()
        self._outputs: dict[str, OutputPlan] = {}
        self._places: dict[str, str] = {}
        self._listeners: Final[list[EpochListener]] = []
        self._feeds: WeakValueDictionary[str, ChangeFeed] = WeakValueDictionary()

    def __repr__(self) -> str:
        arrows = [f"{plan.source} -> {plan.name}" for plan in self._outputs.values()]
        return f"Dataflow({self.name!r}: {', '.join(arrows) or 'no outputs'})"

    def _repr_html_(self) -> str:
        """Return the outputs as a table, for a notebook."""
        return of_flow(self.spec)

    @property
    def spec(self) -> FlowSpec:
        """The flow as declared so far, as one value. What you add later does not change it."""
        return FlowSpec(
            self.name, self.store, self.policy, self._sources, self.required, self._outputs, self._following
        )

    @property
    def sources(self) -> Mapping[str, Source]:
        """The sources by name."""
        return MappingProxyType(self._sources)

    @property
    def outputs(self) -> Mapping[str, OutputPlan]:
        """The outputs by name."""
        return MappingProxyType(self._outputs)

    @property
    def required(self) -> frozenset[str]:
        """The names of the sources without which nothing is bound."""
        return frozenset(self._required)

    def source(
        self,
        name: str,
        source: Source | PushSource | Shared | Union,
        *,
        required: bool = False,
        staging: str | None = None,
    ) -> RowStream:
        """Add a source and return the stream of its rows.

        required: no epoch is minted while this source cannot say how far it is; without it the others go on. staging:
        for a source that pushes, a folder of this flow alone for records that wait for an output; on a cluster, one
        that all machines see. None for a temporary folder of this machine.

        `tg.shared` gives a source of another flow, whose owner mints the epochs. `tg.union` gives one that several
        sources of this flow make together. Neither is required by itself, or stages anything.
        """
        _named("source", name)
        if name in self._sources:
            raise NameTaken(flow=self.name, kind="source", name=name)
        self._sources[name], self._following = declared(self, name, source, required=required, staging=staging)
        if required:
            self._required.add(name)
        return RowStream(self, name)

    def sink(
        self,
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
    ) -> None:
        """Add an output: the rows of a stream go into a table.

        start: the first epoch that the table gets: `"now"` for the one that is minted next, an epoch, a time (the
        newest epoch minted by then; without a zone it is UTC), or positions by partition, such as `{"orders-0":
        1200}` (the first epoch with a record there or beyond). None for all of the source. It is settled when the
        flow first runs with the output, and then kept: a table does not change where it begins. `tg.From("orders")`
        for where that output begins, and with the past from its table: see `From`.

        after: outputs, declared before, that are to be live before this one begins to catch up, where it is late.

        timestamps: which `_epoch` the rows have that were bound before the output was made: `"faithful"` for those of
        their records, as in the other tables; `"collapse"` for the epoch up to which the flow was published then; or
        an epoch or a time, for which all earlier rows have that epoch. It is settled with the start.

        patience: the seconds for which upstream keeps what the output lacks while it is paused or has failed, counted
        from when that was bound. None for without end.

        commit_every: how much of a running flow's rows share one commit of the table: a time such as `"10s"`, a size
        such as `"64MB"` (of 2^20 bytes each), a number of epochs, or several of these: the first that is reached
        counts. Without a time nothing waits longer than a minute. The other outputs do not wait for it; publishing
        does. None to commit each epoch at once.

        schema: what becomes of the table when its rows get other columns: `"strict"` to refuse that; `"add"` to add
        new ones, null in the rows before; `"evolve"` also to widen types, and to leave null what rows no longer have.
        With either, a source whose columns are inferred takes on those that later records have.
        """
        _named("output", name)
        if name in self._outputs:
            raise NameTaken(flow=self.name, kind="output", name=name)
        plan = planned(
            self,
            name,
            stream,
            sink,
            start=start,
            after=after,
            timestamps=timestamps,
            patience=patience,
            commit_every=commit_every,
            schema=schema,
        )
        if not sink.shared and (other := self._places.setdefault(sink.identity, name)) != name:
            raise TableTaken(output=name, path=sink.identity, other=other)
        self._outputs[name] = plan

    def run(
        self,
        until: Literal["caught-up"] | None = None,
        *,
        spark: Any = None,
        engine: Literal["spark", "local", "sail"] | Engine = "spark",
        env: Env | None = None,
        watch: Callable[[Board], None] | None = None,
        rate: int | None = None,
        maintain: float | None = None,
    ) -> Outcome:
        """Run until interrupted, or until everything that is upstream now is in the outputs.

        spark: a session to use; otherwise one is made on this machine. engine: `"local"` runs Arrow functions and
        plain SQL without Spark; `"sail"`, which is experimental, runs more of SQL without Java. watch: called with
        the flow's board at the start, and whenever something on it may have changed. rate: how many rows a second are
        read for late outputs from now on (`tg.limit`), in this run and later ones; None for as before. maintain:
        every how many seconds the tables are maintained beside it (`tg.maintain`); None for never.

        Raises the first definite error once the sources and outputs that it does not concern have come to rest.
        """
        return self._drive(
            self.spec, until=until, spark=spark, engine=engine, env=env, watch=watch, rate=rate, maintain=maintain
        )

    def start(
        self,
        until: Literal["caught-up"] | None = None,
        *,
        spark: Any = None,
        engine: Literal["spark", "local", "sail"] | Engine = "spark",
        env: Env | None = None,
        watch: Callable[[Board], None] | None = None,
        rate: int | None = None,
        maintain: float | None = None,
    ) -> FlowRun:
        """Run in a thread of its own, with the arguments of `run`; return when the store and the tables are open.

        The handle has `stop()`, `wait()` and `status`; as a context manager it stops the run at the end of the block,
        and waits for it. Raises what stands in the way of opening the flow, such as another driver; what ends the run
        later is raised by `wait()`.
        """
        from tidegauge.dsl.started import FlowRun

        spec = self.spec
        return FlowRun(
            self,
            lambda opened: self._drive(
                spec,
                until=until,
                spark=spark,
                engine=engine,
                env=env,
                watch=watch,
                rate=rate,
                maintain=maintain,
                opened=opened,
            ),
        )

    def _drive(
        self,
        spec: FlowSpec,
        *,
        until: Literal["caught-up"] | None,
        spark: Any,
        engine: Literal["spark", "local", "sail"] | Engine,
        env: Env | None,
        watch: Callable[[Board], None] | None,
        rate: int | None,
        maintain: float | None,
        opened: Callable[[Runner], None] | None = None,
    ) -> Outcome:
        """Run the flow as it was declared, in this thread, and maintain its tables beside it."""
        from tidegauge.dsl.listening import listening
        from tidegauge.dsl.maintained import maintained
        from tidegauge.flow.running import run

        env = env or Env()
        with (
            maintained(self, maintain, env),
            listening(self.name, self._listeners, watch, opened) as (watching, opening),
        ):
            return run(
                spec,
                until=until,
                spark=spark,
                engine=engine,
                env=env,
                watch=watching,
                requests=self._requests,
                rate=rate,
                opened=opening,
                newer=lambda: self.spec,
            )

    def on_epoch(self, listener: EpochListener) -> EpochListener:
        """Have a function called with each `Publication` of the runs that begin from now on; usable as a decorator.

        It is called in a thread of its own, one call after another, once the epochs are durably published. While it
        is busy the run goes on, and the next call has all that was published meanwhile. If it raises, that is logged
        (`TG-0654`). A driver that is killed may have published without telling: what must miss nothing subscribes.
        """
        if not callable(listener):
            raise InvalidArgument(parameter="listener", value=listener, expected="a function of a Publication")
        self._listeners.append(listener)
        return listener

    def tick(self) -> int | None:
        """Mint an epoch now, whatever the policy, while `run` is under way in another thread; wait until it is bound.

        Returns the epoch, which need not be published yet, or None when nothing is new. Everything that was upstream
        before the call is in it, or before it, as far as the sources answer and an epoch takes it
        (`max_records_per_epoch`). Calls that come while a tick is under way share the next one.

        Raises `CannotTick` when no run is under way or it ends before, and `TickHeld` when a required source does not
        say how far it is.
        """
        if self._requests.own_thread:
            raise CannotTick(flow=self.name, why="this is the thread that runs it")
        return self._requests.ask().result()

    def wait_until(self, output: str, state: OutputCondition, *, timeout: float | None = None) -> OutputReport:
        """Wait until an output is in a state, such as `live`; see `tidegauge.wait_until`."""
        from tidegauge.looking.waiting import wait_until

        return wait_until(self, output, state, timeout=timeout)

    def wait_for(
        self,
        positions: Positions | Literal["now"],
        *,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Wait until everything before some positions is in every table; see `tidegauge.wait_for`."""
        from tidegauge.looking.waiting import wait_for

        return wait_for(self, positions, outputs=outputs, timeout=timeout)

    def subscribe(
        self,
        output: str,
        *,
        as_of: AsOf = None,
        up_to: int | None = None,
        snapshot: bool = True,
        progress: bool = False,
        envelope: Enveloping | None = None,
        key: str | Sequence[str] | None = None,
    ) -> Subscriber:
        """Follow an output: its rows as of an epoch, then what each later epoch changes, as Arrow batches.

        Args:
            output: its name.
            as_of: the epoch to begin with, a time or positions of sources; None for the newest published epoch. An
                epoch that is to come is waited for.
            up_to: the first epoch that you do not want; None to go on for as long as the sources do.
            snapshot: whether to begin with the rows as of `as_of`, all with that epoch; else with what came after it.
            progress: whether to be told how far everything has been delivered, in rows with `_progressed`.
            envelope: `"upsert"` or `"debezium"`: what happened to the row of each key, in place of `_diff`.
            key: the columns that tell rows apart, for an envelope.

        Batches have `_epoch`, `_diff` (how often a row came; negative: went) and the output's columns. Subscribers of
        one output share their reader. Raises `InvalidArgument`, `KeyNotGiven`, `SubscribedFromNowhere`; and, while
        you iterate, `OutputHasFailed`, `ChangesUnknown` and what `read_arrow` raises.
        """
        from tidegauge.looking.subscription import ChangeFeed, Subscriber

        feed = self._feeds.get(output)
        if feed is None or feed.flow.outputs[output] is not self._outputs[output]:
            feed = self._feeds[output] = ChangeFeed(self.spec, output, env=Env())
        return Subscriber(
            feed, as_of=as_of, up_to=up_to, snapshot=snapshot, progress=progress, envelope=envelope, key=key
        )

    @overload
    def bindings(
        self, *, source: str | None = None, first: int | None = None, last: int | None = None
    ) -> pa.Table: ...
    @overload
    def bindings(
        self, *, spark: Any, source: str | None = None, first: int | None = None, last: int | None = None
    ) -> DataFrame: ...
    def bindings(
        self, *, spark: Any = None, source: str | None = None, first: int | None = None, last: int | None = None
    ) -> pa.Table | DataFrame:
        """Return the bindings as an Arrow table or a DataFrame; see `tidegauge.bindings`."""
        from tidegauge.looking.bindings import bindings

        return bindings(self, spark=spark, source=source, first=first, last=last)
