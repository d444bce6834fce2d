"""Several minters of one flow on one real store, as a machine that Hypothesis drives: whatever crashes, gets lost, is
taken over or comes back as a zombie, and however clocks step, the store is what a model of a few lines is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.depth import examples
from tests.postgres import Server
from tests.remap.store.minters import WELL, Crash, Fate, Harbour, Intruder, Minter, Model, Stored, Verdict, harbour
from tests.waiting import eventually

from tidegauge.env import Effect
from tidegauge.errors.store import NotYetBound, UpperMismatch
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.store import EXPIRY, SourceSpec
from tidegauge.remap.table import RemapTable

SOURCES = ("orders", "clicks", "late")
"""The first is there from the beginning."""
PARTITIONS = ("p0", "p1")
HOSTS = 3

Moves = dict[str, dict[str, int]]

OWNER = st.sampled_from(["query", "backfill"])
HOST = st.integers(0, HOSTS - 1)
WHO = st.sampled_from([0, 0, 0, 1, 2, 3])
"""0 for the run that has the lease, otherwise the newest run, the one before it, the one before that."""

FATE = st.sampled_from(
    [
        *(4 * [WELL]),
        Fate("crash before"),
        Fate("crash after"),
        Fate("question lost"),
        Fate("question lost", "another"),
        Fate("question lost", "another who binds"),
        Fate("question lost", "itself"),
        Fate("answer lost"),
        Fate("answer lost", "another"),
        Fate("answer lost", "another who binds"),
        Fate("answer lost", "itself"),
    ]
)
LOST = st.sampled_from([Fate("question lost"), Fate("answer lost"), Fate("question lost", "itself")])
MOVES = st.dictionaries(
    st.sampled_from(SOURCES), st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 3), min_size=1)
)
SECONDS = st.sampled_from([-60.0, -1.0, 0.000001, 1.0, EXPIRY - 1, EXPIRY])


class Minters(RuleBasedStateMachine):
    """What the minters do, one thing after the other. One that crashed may be heard of again, or never."""

    def __init__(self, here: Harbour) -> None:
        super().__init__()
        self.here = here
        self.flow = here.begin()
        self.model = Model()
        self.seen: Stored | None = None
        self.runs: list[Minter] = []
        """Those that were given the lease, the newest last. All but one of them are zombies."""

    @initialize()
    def found(self) -> None:
        """The first run of the flow."""
        self.take_over(0)
        self.register(0, SOURCES[0], WELL)

    @rule(host=HOST, fate=FATE)
    def start(self, host: int, fate: Fate) -> None:
        """Another run asks for the lease. It is refused while somebody has it and renewed it in time."""
        self.acquire(self.here.minter(host), fate)

    @rule(host=HOST)
    def take_over(self, host: int) -> None:
        """Another run asks for the lease when that has run out by its own clock."""
        there = self.here.hosts[host]
        if self.model.holder is not None:
            there.clock = max(there.clock, self.model.renewed_at + timedelta(seconds=EXPIRY))
        minter = self.here.minter(host)
        self.acquire(minter, WELL)
        assert self.model.holder == minter.run

    @rule(who=WHO, what=st.sampled_from(["ask again", "renew", "release"]), fate=FATE)
    def tend(self, who: int, what: str, fate: Fate) -> None:
        """A run does something about the lease that it has or had."""
        minter, model = self.one(who), self.model
        if what == "ask again":
            self.acquire(minter, fate)
        elif what == "renew":
            self.perform(minter, None, minter.lease.renew, partial(model.renew, minter.run, minter.host), fate=fate)
        else:
            judge = partial(model.release, minter.run)
            self.perform(minter, "release lease", minter.lease.release, judge, fate=fate)

    @rule(who=WHO, source=st.sampled_from(SOURCES), fate=FATE)
    def register(self, who: int, source: str, fate: Fate) -> None:
        """A source joins, when epochs may be bound already."""
        minter = self.one(who)
        do = partial(minter.store.register, minter.lease, sources={source: SourceSpec({})}, outputs={})
        self.perform(minter, "register", do, partial(self.model.register, minter.run, source), fate=fate)

    @precondition(lambda self: not self.model.sources.issuperset(SOURCES))
    @rule(who=WHO, fate=FATE)
    def join_late(self, who: int, fate: Fate) -> None:
        """A source joins between two epochs of one run, which knows by the first where all that were there stand."""
        minter, source = self.one(who), next(name for name in SOURCES if name not in self.model.sources)
        self.append(minter, {SOURCES[0]: self.moved(SOURCES[0], {"p0": 1})}, WELL)
        do = partial(minter.store.register, minter.lease, sources={source: SourceSpec({})}, outputs={})
        self.perform(minter, "register", do, partial(self.model.register, minter.run, source), fate=WELL)
        self.append(minter, {source: self.moved(source, {"p0": 1})}, fate)

    @rule(who=WHO, epochs=st.lists(MOVES, min_size=1, max_size=3), drift=st.sampled_from([1, -1, 0]), fate=FATE)
    def bind(self, who: int, epochs: list[Moves], drift: int, fate: Fate) -> None:
        """The next epochs: in each some sources moved, or none. Fate strikes at the first one."""
        for nth, moves in enumerate(epochs):
            minter = self.one(who)
            minter.host.clock += timedelta(seconds=drift)
            frontiers = {source: self.moved(source, by) for source, by in moves.items()}
            self.append(minter, frontiers, WELL if nth else fate)

    @rule(who=WHO, moves=MOVES, off=st.sampled_from([-2, -1, 0, 1]), fate=FATE)
    def bind_wrongly(self, who: int, moves: Moves, off: int, fate: Fate) -> None:
        """What was decided on an old view of the timeline, or on one that never was; else with a source that goes
        back, unless it is at its origin."""
        frontiers = {source: self.moved(source, by) for source, by in moves.items()}
        behind = {} if off else {SOURCES[0]: self.moved(SOURCES[0], {"p0": -1})}
        self.append(self.one(who), {**frontiers, **behind}, fate, off=off)

    @rule(who=WHO, source=st.sampled_from(SOURCES), fate=FATE)
    def seal(self, who: int, source: str, fate: Fate) -> None:
        self.append(self.one(who), {source: self.model.now(source).seal()}, fate)

    @rule(who=WHO, left=st.integers(0, 2), off=st.sampled_from([0, 0, -1, 1]), fate=FATE)
    def publish(self, who: int, left: int, off: int, fate: Fate) -> None:
        """All that is bound, but the last few; or what was decided when less was published, or more."""
        minter, expected, upper = self.one(who), self.model.published + off, self.model.upper - left
        do = partial(minter.store.publish, minter.lease, expected=expected, upper=upper, at=minter.host.clock)
        judge = partial(self.model.publish, minter.run, expected, upper)
        self.perform(minter, "publish", do, judge, again=partial(self.model.check, minter.run), fate=fate)

    @rule(first=LOST, then=LOST)
    def bind_and_publish(self, first: Fate, then: Fate) -> None:
        """An epoch is published as soon as it is bound, so there is something to publish; and both get lost."""
        self.append(self.one(0), {SOURCES[0]: self.moved(SOURCES[0], {"p0": 1})}, first)
        self.publish(0, 0, 0, then)

    @rule(who=WHO, left=st.integers(-1, 2), fate=FATE)
    def compact(self, who: int, left: int, fate: Fate) -> None:
        """Up to the last published epoch but a few, or past it; when as much as can be is published."""
        self.publish(who, 0, 0, WELL)
        minter, since = self.one(who), max(self.model.published - 1 - left, 0)
        do = partial(minter.store.advance_since, minter.lease, since)
        judge = partial(self.model.advance_since, minter.run, since)
        self.perform(minter, "advance since", do, judge, fate=fate)

    @rule(who=WHO, owner=OWNER, near=st.sampled_from(["since", "upper"]), off=st.integers(-1, 1), fate=FATE)
    def hold(self, who: int, owner: str, near: str, off: int, fate: Fate) -> None:
        """An epoch is to stay distinct: one of the oldest or the newest, or past those. No lease is asked for."""
        minter = self.one(who)
        epoch = max((self.model.since if near == "since" else self.model.upper - 1) + off, 0)
        do = partial(minter.store.hold, self.flow, owner, epoch)
        self.perform(minter, None, do, partial(self.model.hold, owner, epoch), fate=fate)

    @rule(who=WHO, left=st.integers(-1, 2), fate=FATE)
    def compact_past_the_first_of_two_holds(self, who: int, left: int, fate: Fate) -> None:
        """The oldest epoch is held, and then the newest by somebody else: it is the oldest one that counts."""
        minter = self.one(who)
        for owner, epoch in (("query", self.model.since), ("backfill", max(self.model.upper - 1, 0))):
            do = partial(minter.store.hold, self.flow, owner, epoch)
            self.perform(minter, None, do, partial(self.model.hold, owner, epoch), fate=WELL)
        self.compact(who, left, fate)

    @precondition(lambda self: self.model.since > 0)
    @rule(who=WHO, owner=OWNER, before=st.integers(1, 3), fate=FATE)
    def hold_too_late(self, who: int, owner: str, before: int, fate: Fate) -> None:
        """An epoch is to stay distinct that no longer is."""
        epoch = max(self.model.since - before, 0)
        do = partial(self.one(who).store.hold, self.flow, owner, epoch)
        self.perform(self.one(who), None, do, partial(self.model.hold, owner, epoch), fate=fate)

    @rule(who=WHO, owner=OWNER, fate=FATE)
    def let_go(self, who: int, owner: str, fate: Fate) -> None:
        minter = self.one(who)
        do, judge = partial(minter.store.release, self.flow, owner), partial(self.model.let_go, owner)
        self.perform(minter, None, do, judge, again=lambda: None, fate=fate)

    @rule(host=st.none() | HOST, seconds=SECONDS)
    def clocks_step(self, host: int | None, seconds: float) -> None:
        """One clock does, or time passes for all of them."""
        for stepping in self.here.hosts if host is None else [self.here.hosts[host]]:
            stepping.clock += timedelta(seconds=abs(seconds) if host is None else seconds)

    def one(self, who: int) -> Minter:
        holder = [minter for minter in self.runs if minter.run == self.model.holder]
        return holder[0] if who == 0 and holder else self.runs[-min(max(who, 1), len(self.runs))]

    def moved(self, source: str, by: Mapping[str, int]) -> Frontier:
        now = self.model.now(source)
        return Frontier({p: max(now[p] + by.get(p, 0), 0) for p in {*now, *by}}, sealed=now.sealed)

    def acquire(self, minter: Minter, fate: Fate) -> None:
        judge = partial(self.model.acquire, minter.run, minter.host)
        self.perform(minter, "acquire lease", partial(minter.take, self.flow), judge, fate=fate)
        if minter.has_lease and minter not in self.runs:
            self.runs.append(minter)

    def append(
        self, minter: Minter, frontiers: Mapping[str, Frontier], fate: Fate, *, off: int = 0, by_twin: bool = False
    ) -> None:
        model, expected = self.model, self.model.upper + off
        do = partial(minter.append, expected, frontiers, by_twin=by_twin)
        judge = partial(model.append, minter.run, expected, minter.host.clock, frontiers)

        def again() -> Verdict:
            return model.check(minter.run) or (None if model.upper == expected + 1 else UpperMismatch)

        self.perform(minter, "append bindings", do, judge, again=again, fate=fate)

    def perform(
        self,
        minter: Minter,
        effect: Effect | None,
        do: Callable[[], object],
        judge: Callable[[], Verdict],
        *,
        again: Callable[[], Verdict] | None = None,
        fate: Fate,
    ) -> None:
        """Let a minter do something, let the model do it, and compare how it ends.

        judge: does it in the model, and says how that ends. again: says how it ends a second time, where that is
        not the same.
        """
        answered: list[Verdict] = []

        def pause() -> None:
            if fate.how == "answer lost":
                answered.append(judge())
                self.let_it_land()
            self.intrude(minter, fate.meanwhile)

        ended = minter.attempt(do, effect, fate, pause)
        if fate.how == "crash before" and effect is not None:
            expected: Verdict = Crash
        elif answered:
            assert answered == [None], "what is refused commits nothing"
            expected = (again or judge)()
        else:
            expected = judge()
            if fate.how == "crash after" and effect is not None:
                expected = expected or Crash
        assert ended is expected

    def let_it_land(self) -> None:
        """Wait for a commit that the server may not have come to yet, although its client has heard the end."""
        eventually(lambda: self.here.stored(self.flow) == self.model.stored())

    def intrude(self, minter: Minter, intruder: Intruder) -> None:
        """What happens while a minter waits to try again."""
        further = {SOURCES[0]: self.moved(SOURCES[0], {"p0": 2})}
        if intruder == "itself" and minter.has_lease:
            self.append(minter, further, WELL, by_twin=True)
        elif intruder in ("another", "another who binds"):
            self.take_over((self.here.hosts.index(minter.host) + 1) % HOSTS)
            if intruder == "another who binds":
                self.append(self.one(0), further, WELL)

    @invariant()
    def the_store_is_what_the_model_is(self) -> None:
        stored = self.here.stored(self.flow)
        assert stored == self.model.stored()
        assert self.model.minted_at == sorted(self.model.minted_at)
        if stored != self.seen:
            self.seen, loaded = stored, self.here.load(self.flow)
            for source in self.model.sources:
                answers_as_defined(self.model, source, loaded.sources[source].table)


def answers_as_defined(model: Model, source: str, table: RemapTable) -> None:
    """What is loaded is the table of the same bindings that never saw a store, and answers by the definition."""
    expected = model.table(source)
    assert sorted(table.changes()) == sorted(expected.changes())
    assert (table.sealed_at, table.upper, table.since) == (expected.sealed_at, model.upper, model.since)
    for epoch in range(model.since, model.upper):
        assert table.frontier_at(epoch) == model.at(epoch, source)
        assert table.inverse(epoch) == (model.at(epoch - 1, source) if epoch > model.since else ORIGIN)
    for partition in PARTITIONS:
        epochs = model.epochs_of(source, partition)
        assert [epoch_of(table, partition, position) for position in range(len(epochs))] == epochs


def epoch_of(table: RemapTable, partition: str, position: int) -> int | None:
    """The epoch of a record; None while it is in none, as every record before the first binding is (law 7)."""
    try:
        return table.epoch_of(partition, position)
    except NotYetBound:
        return None


@pytest.mark.deep
@pytest.mark.timeout(900)  # a failure is made smaller first, which Hypothesis gives five minutes
@pytest.mark.parametrize(("kind", "count"), [("sqlite", 40), ("postgresql", 15)])  # a lost line takes time to mend
def test_minters_that_crash_and_come_back_make_one_timeline(
    kind: str, count: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: Server | None = request.getfixturevalue("postgres") if kind == "postgresql" else None
    url = server.place() if server else f"sqlite:///{tmp_path}/store.db"
    with harbour(url, server, hosts=HOSTS) as here:
        machine = cast("type[Minters]", partial(Minters, here))  # what makes one is all that is asked of it
        run_state_machine_as_test(machine, settings=settings(max_examples=examples(count), stateful_step_count=30))
