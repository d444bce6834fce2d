"""A topic and its store prove that they have one history too; a store comes back from what the progress topic has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.sinks.kafka.conftest import consumed
from tests.sources.kafka.writing import delete

import tidegauge as tg
from tidegauge.errors.history import OnlyAppended, StoreBehindTable
from tidegauge.errors.sinks import TableWentBack
from tidegauge.errors.store import EpochBelowSince
from tidegauge.testing import Endpoint


def test_a_store_older_than_a_topic_is_refused_and_comes_back_from_it(
    kafka_broker: Endpoint, topic_name: str, tmp_path: Path
) -> None:
    lines = tmp_path / "orders.jsonl"

    def flow(topic: str = topic_name) -> tg.Dataflow:
        made = tg.Dataflow("tides", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
        orders = made.source("orders", tg.FileSource(str(lines), format=tg.Json("id long")))
        into = tg.KafkaSink(
            kafka_broker.servers,
            topic=topic,
            partitions=1,
            staging=str(tmp_path),
            progress_topic=f"{topic_name}-p",
        )
        made.sink("topic", orders, into)
        return made

    def run(number: int) -> None:
        with lines.open("a") as file:
            file.write(f'{{"id": {number}}}\n')
        flow().run("caught-up", engine=tg.LocalEngine(threads=0))

    def ids(topic: str = topic_name) -> list[int]:
        return sorted(message.row["id"] for message in consumed(kafka_broker.servers, topic))

    run(0)
    tg.backup(flow(), tmp_path / "copy.db")
    run(1)
    tg.skip(flow(), "orders", str(lines), 0, 10)
    run(2)
    lost = tg.status(flow()).sources[0].lost
    remove(tmp_path)
    shutil.copy(tmp_path / "copy.db", tmp_path / "flow.db")
    with pytest.raises(StoreBehindTable) as caught:
        run(3)
    assert (caught.value.evidence["store"], caught.value.evidence["table"]) == (1, 3)
    assert isinstance(tg.status(flow()).outputs[0].error, StoreBehindTable)
    assert "give topic another place" in caught.value.next_step
    assert "repair" not in caught.value.next_step
    flow(f"{topic_name}-2").run("caught-up", engine=tg.LocalEngine(threads=0))
    assert ids(f"{topic_name}-2") == [0, 1, 2, 3]
    remove(tmp_path)
    done = tg.recover(flow())
    assert (done.upper, done.since, done.outputs) == (3, 2, {"topic": 3})
    assert tg.status(flow()).sources[0].lost == lost == 10
    with pytest.raises(EpochBelowSince):
        tg.explain(flow(), 1)
    run(4)
    assert ids() == [0, 1, 2, 3, 4]
    assert tg.verify(flow()).problems == ()
    assert not tg.recover(flow()).changed


def test_a_topic_whose_progress_is_gone_is_waited_for_and_given_everything_again_when_somebody_says_so(
    kafka_broker: Endpoint, topic_name: str, tmp_path: Path
) -> None:
    lines = tmp_path / "orders.jsonl"
    lines.write_text('{"id": 0}\n')
    progress = f"{topic_name}-p"
    flow = tg.Dataflow("tides", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
    orders = flow.source("orders", tg.FileSource(str(lines), format=tg.Json("id long")))
    into = tg.KafkaSink(
        kafka_broker.servers, topic=topic_name, partitions=1, staging=str(tmp_path), progress_topic=progress
    )
    flow.sink("topic", orders, into)
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    delete(kafka_broker, progress)
    with pytest.raises(TableWentBack, match="held the epochs of 'tides:topic' before 1"):
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    [output] = tg.status(flow).outputs
    assert (output.state, getattr(output.error, "code", "")) == ("stalled", "TG-0435")
    assert [message.row["id"] for message in consumed(kafka_broker.servers, topic_name)] == [0]
    with pytest.raises(OnlyAppended):
        tg.repair(flow, "topic", engine="local")
    assert tg.repair(flow, "topic", from_epoch=0, engine="local").begun_anew
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    assert [message.row["id"] for message in consumed(kafka_broker.servers, topic_name)] == [0, 0]


def remove(root: Path) -> None:
    for path in root.glob("flow.db*"):
        path.unlink()
