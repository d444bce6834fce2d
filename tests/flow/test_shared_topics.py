"""Topics that two flows share: one group, one look at the brokers, and tables that agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.flow.shared import contents
from tests.flow.test_kafka_flows import N, committed, run
from tests.sources.kafka.writing import forget, numbers, recreate, write

import tidegauge as tg
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import RecordsLost
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet

Flows = tuple[tg.Dataflow, tg.Dataflow]


def flows(root: Path, broker: Endpoint, topic: str, **more: Any) -> Flows:
    shop, billing = (tg.Dataflow(name, store=f"sqlite:///{root}/flow.db", tick=0.02) for name in ("shop", "billing"))
    orders = shop.source("orders", tg.KafkaSource(broker.servers, topic=topic, format=N, metadata=True, **more))
    for flow, stream in ((shop, orders), (billing, billing.source("orders", tg.shared(orders)))):
        flow.sink("orders", stream, tg.DeltaSink(f"{root}/{flow.name}/orders"))
        flow.sink("bad", stream.errors, tg.ParquetSink(f"{root}/{flow.name}/bad"))
    return shop, billing


def agree(both: Flows) -> None:
    for output in ("orders", "bad"):
        assert contents(both[0], output) == contents(both[1], output)


def test_the_tables_of_a_shared_topic_agree(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    both = shop, billing = flows(tmp_path, kafka_broker, topic, max_records_per_epoch=4)
    write(kafka_broker, topic, numbers(range(10)))
    write(kafka_broker, topic, [b"no json", *numbers(range(10, 15))], partition=1)
    run(shop)
    run(billing)
    write(kafka_broker, topic, numbers(range(15, 20)))
    run(shop)
    run(billing)
    agree(both)
    assert sorted(tg.read_arrow(billing, "orders").column("n").to_pylist()) == list(range(20))
    assert tg.read_arrow(billing, "bad").num_rows == 1
    groups = AdminClient(quiet(kafka_broker.servers)).list_consumer_groups().result().valid
    assert f"tidegauge.{billing.name}.orders" not in {group.group_id for group in groups}


def test_the_owner_commits_no_further_than_its_follower_holds(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    shop, billing = flows(tmp_path, kafka_broker, topic)
    write(kafka_broker, topic, numbers(range(5)))
    run(shop)
    run(billing)
    run(shop)
    assert committed(kafka_broker, shop, topic) == 5
    write(kafka_broker, topic, numbers(range(5, 9)))
    run(shop)
    run(shop)
    assert committed(kafka_broker, shop, topic) == 5
    run(billing)
    run(shop)
    assert committed(kafka_broker, shop, topic) == 9


def test_an_owner_that_runs_commits_as_soon_as_its_follower_has_caught_up(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    from tests.waiting import eventually

    shop, billing = flows(tmp_path, kafka_broker, topic)
    write(kafka_broker, topic, numbers(range(5)))
    run(shop)
    run(billing)
    with shop.start(engine="local"):
        write(kafka_broker, topic, numbers(range(5, 9)))
        eventually(lambda: tg.status(shop).published == 2)
        run(billing)
        eventually(lambda: committed(kafka_broker, shop, topic) == 9)


def test_a_topic_that_was_recreated_is_gone_on_with_by_both(
    tmp_path: Path, kafka_broker: Endpoint, topic: str
) -> None:
    both = shop, billing = flows(tmp_path, kafka_broker, topic)
    write(kafka_broker, topic, numbers(range(5)))
    run(shop)
    run(billing)
    recreate(kafka_broker, topic)
    write(kafka_broker, topic, numbers(range(50, 53)))
    with pytest.raises(UpstreamRecreated):
        run(shop)
    run(billing)  # nothing new is bound, so nothing is read
    tg.resume(shop, "orders", new_incarnation=True)
    run(shop)
    run(billing)
    agree(both)
    assert sorted(tg.read_arrow(billing, "orders").column("n").to_pylist()) == [0, 1, 2, 3, 4, 50, 51, 52]


@pytest.mark.parametrize("choice", ["stop", "gap"])
def test_what_is_gone_before_the_follower_has_read_it_is_lost_there_alone(
    tmp_path: Path, kafka_broker: Endpoint, topic: str, choice: str
) -> None:
    shop, billing = flows(tmp_path, kafka_broker, topic, on_data_loss=choice)
    write(kafka_broker, topic, numbers(range(5)))
    run(shop)
    forget(kafka_broker, topic, 3)
    if choice == "stop":
        with pytest.raises(RecordsLost):
            run(billing)
        assert [one.state for one in tg.status(billing).sources] == ["failed"]
    else:
        run(billing)
        assert sorted(tg.read_arrow(billing, "orders").column("n").to_pylist()) == [3, 4]
        assert [one.lost for one in tg.status(billing).sources] == [3]
    assert [one.lost for one in tg.status(shop).sources] == [0]
    assert tg.read_arrow(shop, "orders").num_rows == 5
