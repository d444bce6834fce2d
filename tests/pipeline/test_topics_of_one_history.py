"""A topic and its store prove that they have one history too; a store comes back from what the progress topic has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.sinks.kafka.conftest import consumed

import tidegauge as tg
from tidegauge.errors.history import StoreBehindTable
from tidegauge.errors.store import EpochBelowSince
from tidegauge.testing import Endpoint


def test_a_store_older_than_a_topic_is_refused_and_comes_back_from_it(
    kafka_broker: Endpoint, topic_name: str, tmp_path: Path
) -> None:
    lines = tmp_path / "orders.jsonl"

    def flow() -> tg.Dataflow:
        made = tg.Dataflow("tides", store=f"sqlite:///{tmp_path}/flow.db", tick=0.02)
        orders = made.source("orders", tg.FileSource(str(lines), format=tg.Json("id long")))
        into = tg.KafkaSink(
            kafka_broker.servers,
            topic=topic_name,
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

    def ids() -> list[int]:
        return sorted(message.row["id"] for message in consumed(kafka_broker.servers, topic_name))

    run(0)
    tg.backup(flow(), tmp_path / "copy.db")
    run(1)
    run(2)
    remove(tmp_path)
    shutil.copy(tmp_path / "copy.db", tmp_path / "flow.db")
    with pytest.raises(StoreBehindTable) as caught:
        run(3)
    assert (caught.value.evidence["store"], caught.value.evidence["table"]) == (1, 3)
    assert isinstance(tg.status(flow()).outputs[0].error, StoreBehindTable)
    remove(tmp_path)
    done = tg.recover(flow())
    assert (done.upper, done.since, done.outputs) == (3, 2, {"topic": 3})
    with pytest.raises(EpochBelowSince):
        tg.explain(flow(), 1)
    run(4)
    assert ids() == [0, 1, 2, 3, 4]
    assert tg.verify(flow()).problems == ()
    assert not tg.recover(flow()).changed


def remove(root: Path) -> None:
    for path in root.glob("flow.db*"):
        path.unlink()
