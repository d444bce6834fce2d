"""The laws of the design on a real broker that changes in every way a broker does, with drivers that are killed.

`Upstream` makes each change to a topic and to a model of it. A life of a driver is a process of its own, during
which the topic stays as it is; so what an epoch has to hold follows from its bindings and from the model at the time
when an output committed it. `TIDEGAUGE_EXAMPLES` sets how many histories are tried, `--hypothesis-seed` which.

A history is worth what its drivers meet. So every rule is a change and then, mostly, a life; a change brings records
that nobody has read; and Hypothesis, which leaves some rules out of each history, cannot leave out the lives.

Laws 1 and 6: an epoch holds the committed records of its ranges, and does not change. Law 2: a range is bound before
it is read (the driver looks). Law 4: the group's offsets never pass what every output holds (here after each life,
and in the driver before each acknowledgement). Law 8: a topic of the same name is not the same topic. Law 9: what is
lost stops the source, or is a row of `gaps`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.flow.kafka.driving import Drivers, Shop, numbers
from tests.flow.kafka.upstream import Log, Upstream
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.env import EFFECTS, Effect
from tidegauge.errors.command import NotPublished, OutputIsBehind
from tidegauge.errors.running import LossNotAccepted, UpstreamRecreated
from tidegauge.errors.sources import RecordsLost
from tidegauge.flow.belonging import table_of
from tidegauge.kafka.cluster import partition as named
from tidegauge.kafka.cluster import split
from tidegauge.looking.inspect import holds
from tidegauge.reclock.slices import held
from tidegauge.remap.store import Gap, Loaded, Store
from tidegauge.testing import KafkaBroker
from tidegauge.testing.endpoint import quiet

Piece = tuple[int, str, int, int]
"""An epoch, a partition, and offsets `[lower, upper)` of it."""
OUTPUTS = ("parquet", "delta", "tagged")


class Life(NamedTuple):
    """How a driver lives. It is killed when it comes to the point for the nth time, "" for never.

    heeded: whether a failure of the source is dealt with before.
    """

    point: str = ""
    nth: int = 0
    heeded: bool = True


def lives() -> st.SearchStrategy[Life]:
    """Half of the lives come to their end; of the deaths most are where every driver comes to."""
    effects = [effect for effect in EFFECTS if effect != "stage poll"]
    points = [f"{side} {effect}" for effect in (*effects, *USUAL, *USUAL) for side in ("before", "after")]
    deadly = st.builds(Life, st.sampled_from(points), st.integers(0, 2), OFTEN)
    return st.one_of(st.builds(Life, heeded=OFTEN), deadly)


EXAMPLES = int(os.environ.get("TIDEGAUGE_EXAMPLES", "3"))
USUAL: tuple[Effect, ...] = ("append bindings", "stage", "commit output", "publish", "acknowledge")
OFTEN = st.sampled_from([True, True, True, True, False])
LIVES = lives()
THEN = st.integers(0, 3).flatmap(lambda none: LIVES if none else st.none())
KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5)
WRITES = st.lists(st.tuples(st.integers(0, 3), KEYS), min_size=1, max_size=3)

Writes = list[tuple[int, list[str]]]
Then = Life | None
"""What comes after a change: the life of a driver, or at once the next change."""


class Laws(RuleBasedStateMachine):
    """Writers, an operator of the broker, and drivers that live one after the other."""

    def __init__(self, broker: KafkaBroker, drivers: Drivers) -> None:
        super().__init__()
        self.broker = broker
        self.drivers = drivers
        self.root = Path(tempfile.mkdtemp(prefix="tidegauge-laws-"))
        self.bindings: list[tuple[int, int, str, int, int]] = []
        """Incarnation, epoch, partition, lower, upper: as of the last look."""
        self.made: dict[int, int] = {}
        """The generation of the topic that is bound in each incarnation."""
        self.starts: dict[tuple[int, str], int] = {}
        self.incarnation = 0
        self.failure: str | None = None
        self.uppers: dict[str, int] = {}
        self.joined: dict[str, int] = {}
        """The incarnation that each output was first given."""
        self.expected: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        """What each epoch of each output has to hold, from when it was committed."""
        self.staged: dict[tuple[str, int, str], dict[tuple[str, int], int]] = {}
        """What is staged of a past, and recorded, from when it was: by output, epoch and partition."""
        self.gaps: list[Piece] = []
        self.ceiling: dict[str, int] = {}
        self.told: dict[str, int] = {}

    @initialize(
        partitions=st.integers(1, 2),
        start=st.sampled_from(["earliest", "latest"]),
        gap=st.booleans(),
        limit=st.sampled_from([3, 3, 1000]),
        outputs=st.integers(1, 2),
        restarts=st.integers(0, 9).map(lambda tenth: tenth // 9),
        compactions=st.integers(0, 2).map(lambda third: third // 2),
        writes=WRITES,
        then=THEN,
    )
    def begin(
        self,
        partitions: int,
        start: Any,
        gap: bool,
        limit: int,
        outputs: int,
        restarts: int,
        compactions: int,
        writes: Writes,
        then: Then,
    ) -> None:
        """A topic with records. restarts, compactions: how many there are at most; they take seconds."""
        self.restarts, self.compactions = restarts, compactions
        self.upstream = Upstream(self.broker, partitions=partitions)
        self.shop = Shop(
            root=str(self.root),
            name=f"laws{uuid.uuid4().hex[:12]}",
            servers=self.broker.servers,
            topic=self.upstream.name,
            outputs=OUTPUTS[:outputs],
            start=start,
            gap=gap,
            limit=limit,
            split=2,
        )
        self.group = Consumer(quiet(self.broker.servers, **{"group.id": f"tidegauge.{self.shop.name}.orders"}))
        self.write(writes, then)

    def teardown(self) -> None:
        self.group.close()
        self.upstream.close()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def logs(self) -> list[Log]:
        return self.upstream.logs

    def among(self, writes: Writes) -> Writes:
        """The writes to partitions that there are."""
        return [(number % len(self.logs), keys) for number, keys in writes]

    # What writers do.

    @rule(writes=WRITES, then=THEN)
    def write(self, writes: Writes, then: Then = None) -> None:
        self.upstream.write(self.among(writes))
        self.live(then)

    @precondition(lambda self: self.upstream.open is None)
    @rule(writes=WRITES, how=st.sampled_from(["commit", "abort", "abort", "leave open"]), then=THEN)
    def transact(self, writes: Writes, how: str, then: Then = None) -> None:
        self.upstream.begin(self.among(writes))
        if how != "leave open":
            self.upstream.finish(commit=how == "commit")
        self.live(then)

    @precondition(lambda self: self.upstream.open is not None)
    @rule(commit=st.booleans(), then=THEN)
    def end_the_transaction(self, commit: bool, then: Then = None) -> None:
        self.upstream.finish(commit=commit)
        self.live(then)

    # What the operator of the broker does.

    @rule(writes=WRITES, tenths=st.integers(3, 10), then=THEN)
    def write_and_forget(self, writes: Writes, tenths: int, then: Then = None) -> None:
        """Records are deleted before anybody has read them, and those before them in any case."""
        self.upstream.write(self.among(writes))
        number = self.among(writes)[0][0]
        log = self.logs[number]
        if (upto := log.low + (log.end - log.low) * tenths // 10) > log.low:
            self.upstream.forget(number, upto)
        self.live(then)

    @precondition(lambda self: len(self.logs) < 4)
    @rule(keys=st.lists(st.sampled_from("abc"), max_size=9), then=THEN)
    def grow(self, keys: list[str], then: Then = None) -> None:
        self.upstream.grow()
        self.upstream.write([(len(self.logs) - 1, keys)])
        self.live(then)

    @precondition(lambda self: self.upstream.open is None)
    @rule(partitions=st.integers(1, 3), writes=WRITES, then=THEN)
    def recreate(self, partitions: int, writes: Writes, then: Then = None) -> None:
        self.upstream.recreate(partitions)
        eventually(lambda: not self.committed())  # the group's offsets go with the topic
        self.told = {}
        self.write(writes, then)

    @precondition(
        lambda self: (
            self.compactions and self.upstream.open is None and any(log.superseded(log.end) for log in self.logs)
        )
    )
    @rule(then=THEN)
    def compact(self, then: Then = None) -> None:
        self.compactions -= 1
        self.upstream.compact()
        self.live(then)

    @precondition(lambda self: self.restarts)
    @rule(kill=st.booleans(), then=THEN)
    def restart(self, kill: bool, then: Then = None) -> None:
        self.restarts -= 1
        self.upstream.restart(kill=kill)
        self.live(then)

    # What the user does.

    @precondition(lambda self: len(self.shop.outputs) < len(OUTPUTS))
    @rule(then=THEN)
    def add_an_output(self, then: Then = None) -> None:
        self.shop = replace(self.shop, outputs=OUTPUTS[: len(self.shop.outputs) + 1])
        self.live(then)

    def heed(self) -> None:
        """Deal with a failure of the source."""
        if self.failure == RecordsLost.code:
            self.go_on_with_a_gap()
        elif self.failure == UpstreamRecreated.code:
            self.go_on_with_the_new_topic()

    def go_on_with_a_gap(self) -> None:
        self.shop = replace(self.shop, gap=True)
        tg.resume(self.shop.flow(), "orders")
        self.failure = None

    def go_on_with_the_new_topic(self) -> None:
        """What some output lacks of the old one is lost: that has to be accepted, and every range of it is a gap."""
        flow = self.shop.flow()
        lacking = [piece[1:] for piece in self.bindings if piece[0] == self.incarnation and self.lacks(piece[1])]
        if lacking:
            with pytest.raises(LossNotAccepted):
                tg.resume(flow, "orders", new_incarnation=True)
        resumed = tg.resume(flow, "orders", new_incarnation=True, accept_loss=bool(lacking))
        assert [piece_of(gap) for gap in resumed.gaps] == sorted(lacking)
        assert resumed.incarnation == self.incarnation + 1
        self.gaps = sorted({*self.gaps, *lacking})
        self.incarnation += 1
        self.ceiling, self.failure = {}, None

    def lacks(self, epoch: int) -> bool:
        return any(self.uppers.get(output, 0) <= epoch for output in self.shop.outputs)

    # What drivers do.

    @rule(life=LIVES)
    def live(self, life: Then) -> None:
        """A driver lives until it is caught up, has failed, or is killed."""
        if life is not None:
            try:
                if life.heeded:
                    self.heed()
                self.life(life.point, life.nth)
            except AssertionError:
                traceback.print_exc()  # of what depends on the instant Hypothesis may only say that it does so
                raise

    def life(self, point: str, nth: int) -> None:
        lost, bound = self.lost(), self.incarnation in self.made
        recreated = bound and self.made[self.incarnation] != self.upstream.generation
        failed = self.failure
        end = self.drivers.live(self.shop, point=point, nth=nth)
        self.look()
        if end.killed:
            return
        if failed is not None:
            assert end.code in {failed, UpstreamRecreated.code if recreated else failed}
        elif recreated:
            assert end.code == UpstreamRecreated.code, "a recreated topic was taken for the old one"
        elif lost and not self.shop.gap:
            assert end.code == RecordsLost.code, "a loss was not said"
        else:
            assert end.code == "", self.drivers.log.read_text()
            self.everything_is_there()
        assert self.failure == (end.code or None), "a failure that a restart would forget"

    def lost(self) -> list[tuple[str, int, int]]:
        """What a driver that begins now finds to be gone: before it was bound, or before every output had it."""
        now = self.incarnation
        if now not in self.made or self.made[now] != self.upstream.generation:
            return []
        found = []
        for number, log in enumerate(self.logs):
            name = named(self.upstream.name, number)
            places = [self.frontier(now).get(name, 0)]
            for incarnation, epoch, partition, lower, upper in self.bindings:
                if (incarnation, partition) == (now, name) and self.lacks(epoch):
                    lower = max(lower, self.starts[now, name])
                    places += [lower] if lower < upper else []
            found += [(name, place, log.low) for place in places if place < log.low]
        return found

    def frontier(self, incarnation: int, *, before: int | None = None) -> dict[str, int]:
        """How far each partition is bound, or was before an epoch."""
        return {
            partition: upper
            for number, epoch, partition, _, upper in self.bindings
            if number == incarnation and (before is None or epoch < before)
        }

    def everything_is_there(self) -> None:
        ends = {named(self.upstream.name, number): log.end for number, log in enumerate(self.logs)}
        reached = self.frontier(self.incarnation)
        assert {partition: end for partition, end in ends.items() if end} == reached
        assert not any(self.lacks(epoch) for number, epoch, *_ in self.bindings if number == self.incarnation)

    # The laws, after each life.

    def look(self) -> None:
        flow = self.shop.flow()
        with closing(Store.open(flow.store, env=tg.Env())) as store:
            try:
                loaded = store.load(flow.name)
            except tg.TidegaugeError:
                return  # the driver died before the flow was registered
            gaps = store.gaps(flow.name)
        if "orders" not in loaded.sources:
            return
        source = loaded.sources["orders"]
        assert source.incarnation == self.incarnation
        self.failure = None if source.failure is None else source.failure[1].code
        self.look_at_bindings(flow, source.details)
        uppers = {
            output: table_of(flow.spec, output, loaded).upper for output in flow.outputs if output in loaded.outputs
        }
        self.look_at_gaps([piece_of(gap) for gap in gaps])
        for output, upper in uppers.items():
            self.joined.setdefault(output, self.incarnation)
            self.look_at_commits(output, upper)
        self.look_at_units(loaded)
        for output, upper in uppers.items():
            self.look_at_rows(flow, output, upper, loaded)
        if len(uppers) == len(flow.outputs):
            self.look_at_the_group({output: held(source.table, upper) for output, upper in uppers.items()})

    def look_at_bindings(self, flow: tg.Dataflow, details: Mapping[str, Mapping[str, Any]]) -> None:
        """Laws 2, 6 and 7: bindings are only added to, without gap or overlap, and not beyond what there is."""
        table = tg.bindings(flow, source="orders").to_pylist()
        rows = [(r["incarnation"], r["epoch"], r["partition"], r["lower"], r["position"]) for r in table]
        assert set(self.bindings) <= set(rows), "a binding changed"
        at: dict[tuple[int, str], int] = {}
        for incarnation, _, partition, lower, upper in rows:
            assert lower == at.get((incarnation, partition), 0) < upper
            at[incarnation, partition] = upper
        if details and self.incarnation not in self.made:
            self.made[self.incarnation] = self.upstream.generation
            self.look_at_the_start(details)
        self.look_at_new_partitions(rows, details)
        ends = {named(self.upstream.name, number): log.end for number, log in enumerate(self.logs)}
        for row in set(rows) - set(self.bindings):
            assert row[0] == self.incarnation
            assert self.made[row[0]] == self.upstream.generation, "the records of another topic were bound"
            assert row[4] <= ends[row[2]], "what is not committed was bound"
        self.bindings = rows

    def look_at_the_start(self, details: Mapping[str, Mapping[str, Any]]) -> None:
        """The start is resolved once; a new incarnation begins at the beginning."""
        latest = self.shop.start == "latest" and self.incarnation == 0
        for number, log in enumerate(self.logs):
            name = named(self.upstream.name, number)
            self.starts[self.incarnation, name] = log.end if latest else log.low
            assert details[name]["start"] == self.starts[self.incarnation, name]

    def look_at_new_partitions(self, rows: list[Any], details: Mapping[str, Any]) -> None:
        """T41: a new partition of a topic that is known enters whole, at one epoch, from its beginning."""
        for name in details.keys() - {name for number, name in self.starts if number == self.incarnation}:
            self.starts[self.incarnation, name] = 0
            assert details[name]["start"] == 0
            firsts = [
                upper for number, _, partition, _, upper in rows if (number, partition) == (self.incarnation, name)
            ]
            assert firsts[:1] == [self.logs[split(name)[1]].end][: len(firsts)], "a new partition was cut"

    def look_at_commits(self, output: str, upper: int) -> None:
        """Law 1 and 9: note what the epochs hold that were committed in this life; what they lack is a gap."""
        known = self.uppers.get(output, 0)
        assert known <= upper, "a table went back"
        for incarnation, epoch, partition, lower, end in self.bindings:
            if not known <= epoch < upper:
                continue
            content = self.expected.setdefault((output, epoch), {})
            if incarnation < self.incarnation:
                if incarnation >= self.joined[output]:  # one that is added later is given nothing of an older topic
                    assert (epoch, partition, lower, end) in self.gaps
                continue
            staged = self.staged.get((output, epoch, partition))
            content.update(self.read(incarnation, epoch, partition, lower, end) if staged is None else staged)
        self.uppers[output] = upper

    def look_at_units(self, loaded: Loaded) -> None:
        """A past that is staged stays, whatever happens to the topic before it is committed: note what it holds."""
        staged = {}
        for output, backfill in loaded.backfills.items():
            for incarnation, epoch, partition, lower, end in self.bindings:
                if incarnation == self.incarnation and any(u.lower <= epoch < u.upper for u in backfill.units):
                    place = output, epoch, partition
                    known = self.staged.get(place)
                    staged[place] = self.read(incarnation, *place[1:], lower, end) if known is None else known
        self.staged = staged

    def read(self, incarnation: int, epoch: int, partition: str, lower: int, end: int) -> dict[tuple[str, int], int]:
        """What is read of a range in the life that is looked at."""
        begin = max(lower, self.starts[incarnation, partition])
        if begin >= end:
            return {}
        assert self.made[incarnation] == self.upstream.generation, "a range of the old topic was read of the new one"
        log = self.logs[split(partition)[1]]
        if (gone := min(log.low, end)) > begin:
            assert self.shop.gap, "an epoch of which records are lost was staged"
            assert self.covered(epoch, partition, begin, gone), "a loss is not in `gaps`"
        return {(partition, at): n for at, n in log.records(begin, end).items()}

    def covered(self, epoch: int, partition: str, lower: int, upper: int) -> bool:
        holes = sorted((lo, hi) for at, name, lo, hi in self.gaps if (at, name) == (epoch, partition))
        for begin, end in holes:
            if begin <= lower:
                lower = max(lower, end)
        return lower >= upper

    def look_at_gaps(self, found: list[Piece]) -> None:
        """Law 9: a gap stays, and nothing is said to be lost that is there."""
        assert set(self.gaps) <= set(found), "a gap was forgotten"
        for epoch, partition, lower, upper in set(found) - set(self.gaps):
            assert self.shop.gap
            assert upper <= self.logs[split(partition)[1]].low, "a gap of what is there"
            assert any(
                (now, at, name) == (self.incarnation, epoch, partition) and lo <= lower and upper <= hi
                for now, at, name, lo, hi in self.bindings
            ), "a gap of what is not bound"
        self.gaps = found

    def look_at_rows(self, flow: tg.Dataflow, output: str, upper: int, loaded: Loaded) -> None:
        """Law 1: the published epochs hold what they have to, and nothing else is seen."""
        if output in loaded.backfills and not upper:
            with pytest.raises(OutputIsBehind):
                tg.read_arrow(flow, output)
            return
        seen = min(loaded.flow.published, holds(loaded, "orders", upper))
        content: dict[int, list[tuple[str, int, int]]] = {}
        with suppress(NotPublished):
            rows = tg.read_arrow(flow, output)
            columns = (
                rows.column("_epoch"),
                rows.column("_partition"),
                rows.column("_offset"),
                numbers(output, rows),
            )
            for epoch, partition, offset, n in zip(*(column.to_pylist() for column in columns), strict=True):
                content.setdefault(epoch, []).append((partition, offset, n))
        for epoch in range(seen):
            expected = self.expected.get((output, epoch), {})
            assert sorted(content.pop(epoch, [])) == sorted((*place, n) for place, n in expected.items())
        assert not content, "rows of epochs that are not published are seen"

    def look_at_the_group(self, uppers: Mapping[str, int]) -> None:
        """Law 4: the group's offsets are at most what every output held that there was, and never go back."""
        least = min(uppers.values())
        for partition, upper in self.frontier(self.incarnation, before=least).items():
            self.ceiling[partition] = max(upper, self.ceiling.get(partition, 0))
        told = self.committed()
        for partition, offset in told.items():
            assert offset <= self.ceiling.get(partition, 0), "acknowledged beyond what every output holds"
        assert all(offset <= told.get(partition, 0) for partition, offset in self.told.items())
        self.told = told

    def committed(self) -> dict[str, int]:
        """What the source's group has committed, by partition."""
        name = self.upstream.name
        places = self.group.committed([TopicPartition(name, number) for number in range(len(self.logs))], 30)
        return {named(name, place.partition): place.offset for place in places if place.offset >= 0}


def piece_of(gap: Gap) -> Piece:
    return (gap.epoch, gap.partition, gap.lower, gap.upper)


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with Drivers(tmp_path_factory.mktemp("log") / "drivers.log") as started:
        yield started


@pytest.mark.long
def test_the_laws_hold_on_a_broker_whatever_happens_to_it_and_to_drivers(
    own_broker: KafkaBroker, drivers: Drivers
) -> None:
    run_state_machine_as_test(
        lambda: Laws(own_broker, drivers),  # type: ignore[arg-type]
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=10,
            deadline=None,
            phases=[phase for phase in Phase if phase is not Phase.shrink],  # a history is short, and takes seconds
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )


@pytest.mark.long
def test_the_laws_hold_in_a_history_that_has_everything_once(own_broker: KafkaBroker, drivers: Drivers) -> None:
    laws, whole = Laws(own_broker, drivers), Life()
    laws.begin(
        2, "earliest", gap=False, limit=3, outputs=1, restarts=0, compactions=0, writes=[(0, ["a"])], then=None
    )
    try:
        laws.transact([(0, ["a", "b"]), (1, ["a"])], "abort")
        laws.transact([(0, ["a", "b"]), (1, ["c", "c"])], "commit", whole)
        laws.add_an_output()
        laws.write([(0, ["c", "a"])], Life("after append bindings"))
        laws.write_and_forget([(0, ["a"])], 8, whole)
        assert laws.failure == RecordsLost.code
        laws.heed()
        laws.grow(["a", "b", "c", "a", "a"], whole)
        laws.recreate(2, [(0, ["a"] * 11), (1, ["a"] * 6)], whole)  # each partition is longer than it was
        assert laws.failure == UpstreamRecreated.code
        laws.live(whole)
    finally:
        laws.teardown()


@pytest.mark.long
def test_a_past_that_was_staged_before_its_topic_was_recreated_is_shown(
    own_broker: KafkaBroker, drivers: Drivers
) -> None:
    """Its units are durable, so its commit needs the old topic no more."""
    laws, whole = Laws(own_broker, drivers), Life()
    laws.begin(
        2,
        "earliest",
        gap=False,
        limit=1000,
        outputs=1,
        restarts=0,
        compactions=0,
        writes=[(1, ["c", "a"])],
        then=None,
    )
    try:
        laws.transact([(3, ["c"]), (0, ["a"])], "abort", whole)
        laws.add_an_output()
        laws.transact([(3, ["b"])], "abort", Life("after record unit"))
        assert laws.staged
        laws.recreate(3, [(1, ["a", "c"]), (0, ["b"])])
        laws.write([(0, ["a"])], whole)
        assert laws.failure == UpstreamRecreated.code
        assert laws.uppers["delta"] == 1
    finally:
        laws.teardown()
