"""Three brokers of which one dies, or gives its partitions away: flows go on, and each record is there once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.kafka import present, unique
from tests.sinks.kafka.conftest import consumed
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.flow.runner import Runner
from tidegauge.flow.running import threads
from tidegauge.kafka import Settings
from tidegauge.kafka.clients import admin
from tidegauge.kafka.cluster import offsets
from tidegauge.testing import KafkaCluster
from tidegauge.testing.endpoint import quiet

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("three brokers")]

PARTITIONS = 6
WITHIN = 180.0
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    present()
    with KafkaCluster() as cluster:
        yield cluster


class Shop:
    """A topic into another one and into a table, on a cluster."""

    def __init__(self, cluster: KafkaCluster, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.topic, self.into = unique("in"), unique("out")
        self.count = 0
        cluster.create_topic(self.topic, partitions=PARTITIONS)
        self.producer = Producer(quiet(cluster.servers, acks="all", **{"enable.idempotence": "true"}))

    def write(self) -> None:
        """Ten numbers more in each partition, acknowledged."""
        for _ in range(10 * PARTITIONS):
            self.producer.produce(self.topic, json.dumps({"n": self.count}), partition=self.count % PARTITIONS)
            self.count += 1
        assert self.producer.flush(60) == 0

    @property
    def flow(self) -> tg.Dataflow:
        made = tg.Dataflow("shop", store=f"sqlite:///{self.root}/flow.db", tick=0.1)
        servers = self.cluster.servers
        source = made.source("in", tg.KafkaSource(servers, topic=self.topic, format=tg.Json("n long")))
        made.sink("topic", source, tg.KafkaSink(servers, topic=self.into, key="n", partitions=PARTITIONS))
        made.sink("table", source, tg.ParquetSink(f"{self.root}/table"))
        return made

    def catch_up(self) -> None:
        self.flow.run("caught-up", engine=tg.LocalEngine(threads=2))

    @contextmanager
    def driven(self) -> Iterator[Callable[[Callable[[], bool]], None]]:
        """Run the flow; what is yielded steps it until a condition holds, and everything is published."""
        flow, engine = self.flow, tg.LocalEngine(threads=2)
        with threads(flow.spec) as pool:
            runner = Runner(flow.spec, engine, env=tg.Env(), spawn=pool.submit)

            def until(condition: Callable[[], bool]) -> None:
                deadline = time.monotonic() + WITHIN
                while not (condition() and runner.board.sources["in"].position == self.count):
                    assert time.monotonic() < deadline, [o.error for o in runner.board.outputs.values()]
                    runner.step(park=0.05)

            try:
                yield until
            finally:
                runner.close()
                engine.close()

    def found(self) -> list[list[int]]:
        """What the table and the topic show, each sorted."""
        told = [message.row["n"] for message in consumed(self.cluster.servers, self.into, within=60)]
        shown = tg.read_arrow(self.flow, "table").column("n").to_pylist()
        return [sorted(shown), sorted(told)]

    def check(self) -> None:
        """Raise unless everything is in both, once."""
        assert self.found() == [list(range(self.count))] * 2


@pytest.fixture
def shop(cluster: KafkaCluster, tmp_path: Path) -> Shop:
    return Shop(cluster, tmp_path)


def test_a_flow_that_begins_right_after_one_of_three_was_killed_goes_on_by_itself(shop: Shop) -> None:
    shop.write()
    shop.cluster.leader(shop.topic).kill()
    shop.catch_up()  # for the first time: the output's topic is made meanwhile
    for node in shop.cluster.nodes:
        node.start()
    shop.write()
    shop.cluster.leader("tidegauge-progress").kill()
    shop.catch_up()
    for node in shop.cluster.nodes:
        node.start()
    shop.check()


def test_a_flow_that_runs_goes_on_when_the_broker_dies_that_leads_what_it_writes(shop: Shop) -> None:
    with shop.driven() as until:
        for leader in (shop.into, shop.topic):
            shop.write()
            until(always)
            shop.write()
            node = shop.cluster.leader(leader)
            node.kill()
            shop.write()
            until(always)
            node.start()
    shop.check()


def test_partitions_that_move_to_other_brokers_while_a_flow_runs_are_read_and_written_once(
    shop: Shop, tmp_path: Path
) -> None:
    with shop.driven() as until:
        shop.write()
        until(always)
        for copies in ([1, 2], [3]):
            moves = [
                {"topic": topic, "partition": partition, "replicas": copies}
                for topic in (shop.topic, shop.into)
                for partition in range(PARTITIONS)
            ]
            (tmp_path / "moves.json").write_text(json.dumps({"version": 1, "partitions": moves}))
            given = ["--bootstrap-server", shop.cluster.servers, "--reassignment-json-file", f"{tmp_path}/moves.json"]
            shop.write()
            with ThreadPoolExecutor(1) as beside:
                moving = beside.submit(shop.cluster.run_tool, REASSIGN, *given, "--execute")
                until(moving.done)
                assert "Successfully started" in moving.result()
            shop.write()
            until(lambda copies=copies: moved(shop, copies))  # type: ignore[misc]
            shop.write()
        until(always)
    shop.check()


def test_a_client_that_knew_the_old_leaders_tells_where_partitions_end_that_others_lead(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = cluster.create_topic(unique("moved"), partitions=PARTITIONS)
    places = [(topic, number) for number in range(PARTITIONS)]
    with admin(Settings.of(cluster.servers)) as client:

        def told() -> bool:
            return len(offsets(client, places, "latest", servers=cluster.servers)) == PARTITIONS

        assert told()
        before = leaders(cluster, topic)
        moving = {number: before[number] % 3 + 1 for number in range(3)}
        move = [
            {"topic": topic, "partition": number, "replicas": [leader, *({1, 2, 3} - {leader})]}
            for number, leader in moving.items()
        ]
        (tmp_path / "moves.json").write_text(json.dumps({"version": 1, "partitions": move}))
        at = ["--bootstrap-server", cluster.servers]
        cluster.run_tool(REASSIGN, *at, "--reassignment-json-file", f"{tmp_path}/moves.json", "--execute")
        cluster.run_tool(ELECT, *at, "--election-type", "preferred", "--all-topic-partitions")
        assert leaders(cluster, topic) == {**before, **moving}
        eventually(told)  # some broker may not have heard of it yet
        node = cluster.leader(topic)
        node.kill()
        eventually(lambda: node.settings["node.id"] not in map(str, leaders(cluster, topic).values()), within=WITHIN)
        eventually(told)
        node.start()


def leaders(cluster: KafkaCluster, topic: str) -> dict[int, int]:
    """Which node leads each partition."""
    partitions = cluster.admin().list_topics(topic, timeout=30).topics[topic].partitions
    return {number: partition.leader for number, partition in partitions.items()}


def always() -> bool:
    return True


def moved(shop: Shop, copies: list[int]) -> bool:
    """Whether each partition of both topics is where it is to be."""
    asked = shop.cluster.admin()
    found = [asked.list_topics(topic, timeout=30).topics[topic].partitions for topic in (shop.topic, shop.into)]
    return all(sorted(one.replicas) == copies and one.leader in copies for part in found for one in part.values())
