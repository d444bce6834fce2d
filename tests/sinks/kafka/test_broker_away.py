"""A broker that goes away in the middle of a commit, and comes back: the commit is tried again, and seen once."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kafka import unique
from tests.sinks.kafka.conftest import SCHEMA, Bench, write_id

import tidegauge.sinks.kafka.writer as writer_module
from tidegauge.env import Env
from tidegauge.errors.base import Transient
from tidegauge.errors.kafkasink import TransactionFailed
from tidegauge.kafka import Settings
from tidegauge.sinks import KafkaSink
from tidegauge.sinks.kafka.messages import MessageLayout
from tidegauge.sinks.kafka.writer import TransactionalProducer
from tidegauge.testing import KafkaBroker


@pytest.mark.long
def test_a_commit_that_the_broker_does_not_answer_is_transient_and_seen_once(
    own_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = KafkaSink(own_broker.servers, topic=unique("away"), partitions=1, staging=str(tmp_path))
    bench = Bench(own_broker.servers, sink)
    table = bench.open()
    bench.commit(table, 0, 1)
    files, write = bench.stage([1]), write_id()
    commit = TransactionalProducer.commit

    def without_broker(*arguments: Any) -> None:
        own_broker.kill()  # everything else was sent
        patch.setattr(writer_module, "PATIENCE", 1.0)
        commit(*arguments)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(TransactionalProducer, "commit", without_broker)
            with pytest.raises(TransactionFailed):
                table.commit(1, 2, SCHEMA, files, write=write)
    finally:
        own_broker.start()
    deadline = time.monotonic() + 100
    while table.upper < 2:  # as the flow would
        with suppress(Transient):
            table.commit(1, 2, SCHEMA, files, write=write)
        assert time.monotonic() < deadline
    assert table.upper == 2
    assert bench.rows() == [("ada", 0), ("ada", 1)]


def test_keys_and_headers_on_the_way_are_bounded_as_values_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "PATIENCE", 0.3)
    monkeypatch.setattr(writer_module, "ASIDE", 4 << 20)
    headers = pa.array([[("h", b"x" * 50_000)]] * 10, pa.map_(pa.string(), pa.binary()))
    for layout, column in (
        (MessageLayout("t", key="it"), pa.array([b"x" * 50_000] * 10)),
        (MessageLayout("t", headers="it"), headers),
    ):
        batch = layout.encode(pa.record_batch({"it": column, "n": list(range(10)), "_epoch": [0] * 10}))
        out = TransactionalProducer(Settings.of("127.0.0.1:1"), layout, "", env=Env())
        out.begin(0, 1)
        sent: list[int] = []

        def send(out: TransactionalProducer = out, batch: pa.RecordBatch = batch, sent: list[int] = sent) -> None:
            for n in range(40):
                out.send(0, batch)
                sent.append(n)

        with pytest.raises(TransactionFailed, match="took none of"):
            send()
        out.abandon()
        assert 7 <= len(sent) <= 9, "of half a megabyte each"
