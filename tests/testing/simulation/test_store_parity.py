"""A simulated store, SQLite and PostgreSQL are one: they answer every call alike, with equal faults.

`tests/remap/store/test_minters_machine.py` holds each kind against a model, with crashes and lost lines, of what
binds and publishes. Here no call is left out, and the other store is the model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.postgres import Server

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import ExpressionFailed
from tidegauge.errors.flow import NameTaken
from tidegauge.remap.binding import Proposal
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.history import History, Missed
from tidegauge.remap.store import EXPIRY, Gap, Lease, LeaseHolder, OutputSpec, SourceSpec, Stall, Store
from tidegauge.remap.store.postgres import Postgres
from tidegauge.remap.table import RemapTable
from tidegauge.remap.times import EpochTimes
from tidegauge.testing.simulation.store import Memory, SimulatedStore

SOURCES = ("orders", "clicks", "late")
OUTPUTS = ("raw", "sums")
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
NAMES = count()
OWN_TO_A_STORE = {"id", "flow_id"}

WRITES = ["register", "record schema", "append", "append", "append", "append", "publish", "publish", "advance since"]
WRITES += ["fail", "clear failure", "begin incarnation", "stall", "gap", "pass over", "bring back", "told"]
WRITES += ["fail output", "clear output failure", "held", "hold", "release", "acquire", "lease", "retime", "wait"]
READS = ["load", "load", "load", "read epochs", "read history", "read losses", "read states"]


class Step(NamedTuple):
    """A call by the run `who`. number, off, flag: as the call uses them."""

    call: str
    who: int
    source: str
    output: str
    number: int
    off: int
    flag: bool


STEP = st.builds(
    Step,
    call=st.sampled_from(WRITES + READS),
    who=st.sampled_from([0] * 6 + [1]),
    source=st.sampled_from([*SOURCES[:1] * 3, *SOURCES]),
    output=st.sampled_from(OUTPUTS),
    number=st.integers(0, 3),
    off=st.sampled_from([0, 0, 0, 0, -1, 1]),
    flag=st.booleans(),
)


def plain(value: Any) -> Any:
    """A value by what it says, without the ids that a database gives to its rows."""
    if isinstance(value, RemapTable):
        return sorted(value.changes()), value.sealed_at, value.upper, value.since
    if isinstance(value, EpochTimes):
        return [*value._ticks]
    if isinstance(value, TidegaugeError):
        return type(value), str(value)
    if isinstance(value, pa.Table):
        return value.to_pylist()
    if is_dataclass(value):
        named = [one.name for one in fields(value) if one.compare and one.name not in OWN_TO_A_STORE]
        return type(value), [(name, plain(getattr(value, name))) for name in named]
    if isinstance(value, Frontier):
        return value
    if isinstance(value, Mapping):
        return sorted((key, plain(found)) for key, found in value.items())
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


class Place:
    """A store, open twice. Whatever is random or a time is the same for every kind of store."""

    def __init__(self, url: str, **way: Any) -> None:
        self.now = NOON
        self.drawn = 0
        self.env = Env(now=lambda: self.now, unique=self._unique, **way)
        self.stores = [Store.open(url, env=self.env) for _ in range(2)]

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def _unique(self) -> str:
        self.drawn += 1
        return f"{self.drawn:032x}"


class Runs:
    """Two runs of a new flow. The first one has the lease, the other one had it."""

    def __init__(self, place: Place, flow: str) -> None:
        self.place = place
        self.flow = flow
        self.holders = [LeaseHolder.current(place.env) for _ in range(2)]
        self.leases: list[Lease] = []
        for who in (1, 0):
            place.now += timedelta(seconds=EXPIRY)
            self.leases.insert(0, place.stores[who].acquire(flow, holder=self.holders[who]))
        specs = {source: SourceSpec({}) for source in SOURCES[:2]}
        place.stores[0].register(self.leases[0], sources=specs, outputs={"raw": OutputSpec("orders", {})})

    def act(self, step: Step) -> Any:
        """Do a step, and return what is to be the same on every store."""
        self.place.now += timedelta(seconds=1)
        do = getattr(self, step.call.replace(" ", "_"))
        try:
            return plain(do(step, self.place.stores[step.who], self.leases[step.who]))
        except TidegaugeError as error:
            return type(error), {name: value for name, value in error.evidence.items() if name != "url"}

    # -- who may write

    def acquire(self, step: Step, store: Store, _lease: Lease) -> Any:
        self.leases[step.who] = store.acquire(self.flow, holder=self.holders[step.who])
        return self.leases[step.who]

    def lease(self, step: Step, store: Store, lease: Lease) -> Any:
        if step.flag and step.number:
            return store.break_lease(self.flow, force=step.number == 1)
        if step.flag:
            return lease.release()
        return store.recognise(lease) if step.number == 0 else lease.renew() if step.number == 1 else lease.confirm()

    def wait(self, step: Step, _store: Store, _lease: Lease) -> Any:
        self.place.now += timedelta(seconds=EXPIRY if step.flag else -step.number)

    # -- what is bound

    def register(self, step: Step, store: Store, lease: Lease) -> Any:
        schema = pa.schema([("n", pa.int64())]) if step.flag else None
        source = SourceSpec({"path": step.number}, schema)
        output = OutputSpec(step.source, {"table": step.number // 2})
        store.register(lease, sources={step.source: source}, outputs={step.output: output})

    def record_schema(self, step: Step, store: Store, lease: Lease) -> Any:
        store.record_schema(lease, step.source, pa.schema([("n", pa.int64() if step.number else pa.string())]))

    def append(self, step: Step, store: Store, lease: Lease) -> Any:
        loaded = store.load(self.flow)
        proposals = {}
        for source in {step.source, *(SOURCES[:2] if step.flag else ())} & loaded.sources.keys():
            at = loaded.sources[source].table.frontier
            moved = {f"p{n}": max(0, at[f"p{n}"] + step.number - 2 * (step.off < 0)) for n in range(1 + step.flag)}
            state = SourceState(kind="test", source_id=source, value=[step.number], watermark=self.place.now)
            proposals[source] = Proposal(
                frontier=Frontier({**at, **moved}, sealed=at.sealed or (step.flag and step.number == 3)),
                details={"p0": {"path": f"{source}.json", "size": step.number}} if step.flag else {},
                identity="upstream" if step.number else "",
                state=state if step.flag else None,
            )
        return store.append(
            lease, expected=loaded.flow.upper + max(0, step.off), at=self.place.now, proposals=proposals
        )

    def publish(self, step: Step, store: Store, lease: Lease) -> Any:
        flow = store.load(self.flow).flow
        expected, upper = flow.published + step.off, flow.upper - step.number % 2
        store.publish(lease, expected=expected, upper=upper, at=self.place.now)

    def advance_since(self, step: Step, store: Store, lease: Lease) -> Any:
        store.advance_since(lease, max(0, store.load(self.flow).flow.published - 1 - step.number // 2 + step.off))

    def begin_incarnation(self, step: Step, store: Store, lease: Lease) -> Any:
        gaps = [self._gap(step)] if step.flag else []
        return store.begin_incarnation(lease, step.source, at=self.place.now, reason="recreated", gaps=gaps)

    def retime(self, _step: Step, store: Store, lease: Lease) -> Any:
        return store.retime(lease)

    # -- what went wrong, and what is kept

    def fail(self, step: Step, store: Store, lease: Lease) -> Any:
        error = NameTaken(flow=self.flow, kind="source", name=step.output)
        store.record_failure(lease, step.source, step.number, error)

    def clear_failure(self, step: Step, store: Store, lease: Lease) -> Any:
        store.clear_failure(lease, step.source)

    def fail_output(self, step: Step, store: Store, lease: Lease) -> Any:
        error = ExpressionFailed(output=step.output, epoch=step.number, detail="no number")
        store.record_output_failure(lease, step.output, step.number, error)

    def clear_output_failure(self, step: Step, store: Store, lease: Lease) -> Any:
        store.clear_output_failure(lease, step.output)

    def held(self, step: Step, store: Store, lease: Lease) -> Any:
        store.record_held(lease, {step.output: step.number or None})

    def stall(self, step: Step, store: Store, lease: Lease) -> Any:
        error = NameTaken(flow=self.flow, kind="source", name=step.source)
        store.record_stalls(lease, [Stall("source", step.source, self.place.now, error)] * (step.number % 2))

    def hold(self, step: Step, store: Store, _lease: Lease) -> Any:
        flow = store.load(self.flow).flow
        store.hold(self.flow, step.output, max(0, (flow.since if step.flag else flow.upper - 1) + step.off))
        return store.holds(self.flow)

    def release(self, step: Step, store: Store, _lease: Lease) -> Any:
        store.release(self.flow, step.output)

    # -- losses

    def gap(self, step: Step, store: Store, lease: Lease) -> Any:
        store.record_gap(lease, self._gap(step))
        return store.noted

    def pass_over(self, step: Step, store: Store, lease: Lease) -> Any:
        store.pass_over(lease, step.source, [self._gap(step)], lift=step.flag)

    def bring_back(self, step: Step, store: Store, lease: Lease) -> Any:
        gap = self._gap(step)
        told = Missed(gap.epoch, gap.partition, gap.lower, gap.upper, NOON.isoformat(), gap.code, gap.reason)
        return store.bring_back(lease, {step.source: [told]})

    def told(self, step: Step, store: Store, lease: Lease) -> Any:
        """Tell the losses. Their ids are the database's own, and only used."""
        found = store.untold(lease.flow_id, step.output, before=step.number + 1)
        store.record_told(lease, step.output, found.upto if step.number else 0)
        return found.gaps, found.all

    def _gap(self, step: Step) -> Gap:
        lower, size = step.number, 1 + step.flag
        return Gap(step.source, step.number, "p0", lower, lower + size, NOON, "TG-0301", f"gone from {step.output}")

    # -- what is asked

    def load(self, _step: Step, store: Store, _lease: Lease) -> Any:
        return store.load(self.flow)

    def read_epochs(self, step: Step, store: Store, _lease: Lease) -> Any:
        last = step.number if step.flag else None
        at = self.place.now - timedelta(seconds=5 * step.number)
        return [
            store.epochs(self.flow, first=max(0, step.off), last=last, limit=2 if step.flag else None),
            store.times(self.flow),
            store.epoch_at(self.flow, at),
            store.flow(self.flow),
            store.flow("nobody"),
            bool(store.holder(self.flow)),
            bool(store.silent(self.flow)),
        ]

    def read_history(self, step: Step, store: Store, _lease: Lease) -> Any:
        upper = store.load(self.flow).flow.upper
        lower = max(0, upper - 1 - step.number)
        found = store.history(self.flow, lower, upper, whole=step.flag) if lower < upper else History()
        asked = store.digests(self.flow, [*range(upper + 2)]), store.known_digests(self.flow)
        return [found, *asked, store.bindings(self.flow, source=step.source if step.flag else None, first=lower)]

    def read_losses(self, step: Step, store: Store, lease: Lease) -> Any:
        found = store.untold(lease.flow_id, step.output, before=step.number)
        return [store.gaps(self.flow), found.gaps, found.all, store.holds(self.flow)]

    def read_states(self, step: Step, store: Store, _lease: Lease) -> Any:
        return store.state_at(self.flow, step.source, step.number)


@pytest.fixture(scope="module")
def places(postgres: Server) -> Iterator[list[Place]]:
    """A store of each kind; every example has a flow of its own in them. Time passes by the clock of the test."""
    with pytest.MonkeyPatch.context() as hidden, tempfile.TemporaryDirectory() as folder:
        hidden.setattr(Postgres, "now", lambda _self, _connection: None)
        memory = Memory()
        simulated = Place(memory.url, connect=lambda _address: SimulatedStore(memory, lambda _call: None))
        found = [simulated, Place(f"sqlite:///{folder}/store.db"), Place(postgres.place())]
        yield found
        for place in found:
            place.close()


@deep(36)
@given(bound=st.integers(0, 4), steps=st.lists(STEP, min_size=5, max_size=25))
def test_every_call_has_the_same_answer_on_every_kind_of_store(
    places: list[Place], bound: int, steps: list[Step]
) -> None:
    flow = f"flow {next(NAMES)}"
    runs = [Runs(place, flow) for place in places]
    some = Step("append", 0, SOURCES[0], OUTPUTS[0], 2, 0, flag=True)
    for step in [*[some, some._replace(call="publish")] * bound, *steps, some._replace(call="load")]:
        simulated, on_sqlite, on_postgres = (one.act(step) for one in runs)
        assert simulated == on_sqlite == on_postgres, step
