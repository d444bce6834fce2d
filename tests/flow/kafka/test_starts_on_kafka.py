"""Where outputs begin that read a topic, or write one: the topic's own progress knows it when the store is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.sinks.kafka.conftest import consumed
from tests.sources.kafka.writing import write as produce

import tidegauge as tg
from tidegauge.errors.outputs import StartChanged, StartNotThere
from tidegauge.testing import Endpoint


def test_a_topic_is_begun_at_a_position_and_the_start_comes_back_with_a_lost_store(
    kafka_broker: Endpoint, topic: str, tmp_path: Path
) -> None:
    partition = f"{topic}-0"

    def flow(*, late: bool = True, position: int = 2) -> tg.Dataflow:
        made = tg.Dataflow("tides", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
        orders = made.source("orders", tg.KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json("n long")))
        made.sink("all", orders, tg.ParquetSink(str(tmp_path / "all")))
        if late:
            into = tg.KafkaSink(
                kafka_broker.servers,
                topic=f"{topic}-out",
                partitions=1,
                staging=str(tmp_path),
                progress_topic=f"{topic}-p",
            )
            made.sink("out", orders, into, start={partition: position})
            made.sink("new", orders, tg.DeltaSink(str(tmp_path / "new")), start="now")
        return made

    def run(made: tg.Dataflow, *numbers: int) -> None:
        produce(kafka_broker, topic, [json.dumps({"n": n}).encode() for n in numbers])
        made.run("caught-up", engine=tg.LocalEngine(threads=0))

    def sent() -> list[int]:
        return sorted(message.row["n"] for message in consumed(kafka_broker.servers, f"{topic}-out"))

    run(flow(late=False), 0, 1)
    run(flow(late=False), 2, 3)
    with pytest.raises(StartNotThere, match=f"partition '{partition}' of source 'orders' is bound up to 4"):
        run(flow(position=5))
    run(flow())
    assert sent() == [2, 3]
    run(flow(), 4)
    (tmp_path / "flow.db").unlink()
    for left in tmp_path.glob("flow.db-*"):
        left.unlink()
    tg.recover(flow())
    assert {output.name: output.start and output.start.epoch for output in tg.status(flow()).outputs} == {
        "all": None,
        "out": 1,
        "new": 2,
    }
    with pytest.raises(StartChanged):
        run(flow(position=3))
    run(flow(), 5)
    assert sent() == [2, 3, 4, 5]
    assert sorted(tg.read_arrow(flow(), "new")["n"].to_pylist()) == [4, 5]
