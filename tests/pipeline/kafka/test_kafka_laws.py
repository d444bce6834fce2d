"""The laws of the design on a real broker that changes in every way a broker does, with drivers that are killed.

`Upstream` makes each change to a topic and to a model of it. A life of a driver is a process of its own, during
which the topic stays as it is; so what an epoch has to hold follows from its bindings and from the model at the time
when an output committed it. `TIDEGAUGE_EXAMPLES` sets how many histories are tried, `--hypothesis-seed` which.

Laws 1 and 6: an epoch holds the committed records of its ranges, and does not change. Law 2: a range is bound before
it is read (the driver looks). Law 4: the group's offsets never pass what every output holds. Law 8: a topic of the
same name is not the same topic. Law 9: what is lost stops the source, or is a row of `gaps`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, TopicPartition
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.pipeline.kafka.driving import Drivers, Shop, numbers
from tests.pipeline.kafka.upstream import Log, Upstream
from tests.sources.kafka.writing import eventually

import tidegauge as tg
from tidegauge.env import POINTS
from tidegauge.errors.command import NotPublished
from tidegauge.errors.kafka import RecordsLost
from tidegauge.errors.running import LossNotAccepted, UpstreamRecreated
from tidegauge.kafka.cluster import partition as named
from tidegauge.kafka.cluster import split
from tidegauge.pipeline.inspect import holds, table_of
from tidegauge.reclock.slices import held
from tidegauge.remap.store import Gap, Loaded, Store
from tidegauge.testing import KafkaBroker
from tidegauge.testing.endpoint import quiet

Piece = tuple[int, str, int, int]
"""An epoch, a partition, and offsets `[lower, upper)` of it."""

EXAMPLES = int(os.environ.get("TIDEGAUGE_EXAMPLES", "4"))
KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5)
WRITES = st.lists(st.tuples(st.integers(0, 3), KEYS), min_size=1, max_size=3)
Operation = Literal["forget", "grow", "recreate", "compact", "restart"]
OFTEN: tuple[Operation, ...] = ("forget", "forget", "forget", "grow", "grow", "recreate", "compact")
OPERATIONS = st.sampled_from((*OFTEN, *OFTEN, *OFTEN, *OFTEN, "restart"))
"""What the operator of a broker does, and how often; a restart takes seconds."""


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
        self.expected: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        """What each epoch of each output has to hold, from when it was committed."""
        self.gaps: list[Piece] = []
        self.ceiling: dict[str, int] = {}
        self.told: dict[str, int] = {}

    @initialize(
        partitions=st.integers(1, 3),
        start=st.sampled_from(["earliest", "latest"]),
        gap=st.booleans(),
        limit=st.sampled_from([3, 1000]),
    )
    def begin(self, partitions: int, start: Any, gap: bool, limit: int) -> None:
        self.upstream = Upstream(self.broker, partitions=partitions)
        self.shop = Shop(
            root=str(self.root),
            name=f"laws{uuid.uuid4().hex[:12]}",
            servers=self.broker.servers,
            topic=self.upstream.name,
            outputs=("parquet",),
            start=start,
            gap=gap,
            limit=limit,
            split=2,
        )
        self.group = Consumer(quiet(self.broker.servers, **{"group.id": f"tidegauge.{self.shop.name}.orders"}))

    def teardown(self) -> None:
        self.group.close()
        self.upstream.close()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def logs(self) -> list[Log]:
        return self.upstream.logs

    # What writers do.

    @rule(writes=WRITES)
    def write(self, writes: list[tuple[int, list[str]]]) -> None:
        for number, keys in self.among(writes):
            self.upstream.write(number, keys)

    @precondition(lambda self: self.upstream.open is None)
    @rule(writes=WRITES, commit=st.booleans())
    def transact(self, writes: list[tuple[int, list[str]]], commit: bool) -> None:
        self.upstream.transact(self.among(writes), commit=commit)

    @precondition(lambda self: self.upstream.open is None)
    @rule(writes=WRITES)
    def begin_a_transaction(self, writes: list[tuple[int, list[str]]]) -> None:
        self.upstream.begin(self.among(writes))

    @precondition(lambda self: self.upstream.open is not None)
    @rule(commit=st.booleans())
    def end_it(self, commit: bool) -> None:
        self.upstream.finish(commit=commit)

    def among(self, writes: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
        """The writes to partitions that there are."""
        return [(number % len(self.logs), keys) for number, keys in writes]

    # What the operator of the broker does.

    @rule(what=OPERATIONS, number=st.integers(0, 3), tenths=st.integers(1, 10), kill=st.booleans())
    def operate(self, what: Operation, number: int, tenths: int, kill: bool) -> None:
        """Do one thing, where it can be done."""
        upstream, number = self.upstream, number % len(self.logs)
        log = self.logs[number]
        upto = log.low + (log.end - log.low) * tenths // 10
        still = upstream.open is None
        if what == "forget" and upto > log.low:
            upstream.forget(number, upto)
        elif what == "grow" and len(self.logs) < 4:
            upstream.grow()
        elif what == "recreate" and still:
            upstream.recreate(1 + number)
            eventually(lambda: not self.committed())  # the group's offsets go with the topic
            self.told = {}
        elif what == "compact" and still and any(log.superseded(log.end) for log in self.logs):
            upstream.compact()
        elif what == "restart":
            upstream.restart(kill=kill)

    # What the user does.

    @precondition(lambda self: len(self.shop.outputs) < 3)
    @rule()
    def add_an_output(self) -> None:
        self.shop = replace(self.shop, outputs=("parquet", "delta", "tagged")[: len(self.shop.outputs) + 1])

    @precondition(lambda self: self.failure == RecordsLost.code)
    @rule()
    def go_on_with_a_gap(self) -> None:
        self.shop = replace(self.shop, gap=True)
        tg.resume(self.shop.flow(), "orders")
        self.failure = None

    @precondition(lambda self: self.failure == UpstreamRecreated.code)
    @rule()
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

    @rule()
    def live(self) -> None:
        """A driver lives until it is caught up, or has failed."""
        self.life("", 0)

    @rule(point=st.sampled_from(POINTS), nth=st.integers(0, 2))
    def live_and_be_killed(self, point: str, nth: int) -> None:
        """A driver is killed when it comes to a point for the nth time, if it does."""
        self.life(point, nth)

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
            output: table_of(flow, output, loaded.flow.incarnation).upper
            for output in flow.outputs
            if output in loaded.outputs
        }
        self.look_at_gaps([piece_of(gap) for gap in gaps])
        for output, upper in uppers.items():
            self.look_at_commits(output, upper)
        for output in uppers:
            self.look_at_rows(flow, output, loaded)
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
                assert (epoch, partition, lower, end) in self.gaps
                continue
            begin = max(lower, self.starts[incarnation, partition])
            if begin >= end:
                continue
            assert self.made[incarnation] == self.upstream.generation, (
                "a range of the old topic was read of the new one"
            )
            log = self.logs[split(partition)[1]]
            if (gone := min(log.low, end)) > begin:
                assert self.shop.gap, "an epoch of which records are lost was committed"
                assert self.covered(epoch, partition, begin, gone), "a loss is not in `gaps`"
            content.update({(partition, at): n for at, n in log.records(begin, end).items()})
        self.uppers[output] = upper

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

    def look_at_rows(self, flow: tg.Dataflow, output: str, loaded: Loaded) -> None:
        """Law 1: the published epochs hold what they have to, and nothing else is seen."""
        table = table_of(flow, output, loaded.flow.incarnation)
        seen = min(loaded.flow.published, holds(loaded, "orders", table.upper))
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


def test_the_laws_hold_on_a_broker_whatever_happens_to_it_and_to_drivers(
    own_broker: KafkaBroker, drivers: Drivers
) -> None:
    run_state_machine_as_test(
        lambda: Laws(own_broker, drivers),  # type: ignore[arg-type]
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )


def test_the_laws_hold_in_a_history_that_has_everything_once(own_broker: KafkaBroker, drivers: Drivers) -> None:
    laws = Laws(own_broker, drivers)
    laws.begin(partitions=2, start="earliest", gap=False, limit=3)
    try:
        laws.transact(writes=[(0, ["a", "b"]), (1, ["a"])], commit=False)
        laws.write(writes=[(0, ["a", "b"]), (1, ["c", "c"])])
        laws.live()
        laws.add_an_output()
        laws.write(writes=[(0, ["c", "a"])])
        laws.live_and_be_killed("after append bindings", 0)
        laws.operate("forget", 0, 8, kill=False)
        laws.live()
        assert laws.failure == RecordsLost.code
        laws.go_on_with_a_gap()
        laws.operate("grow", 0, 1, kill=False)
        laws.write(writes=[(2, ["a", "b", "c", "a", "a"])])
        laws.live()
        laws.operate("recreate", 0, 1, kill=False)
        laws.write(writes=[(0, ["a"] * 9)])
        laws.live()
        assert laws.failure == UpstreamRecreated.code
        laws.go_on_with_the_new_topic()
        laws.live()
    finally:
        laws.teardown()
