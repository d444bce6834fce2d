"""A broker that goes away in the middle of a commit, and comes back: the commit is tried again, and seen once."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.kafka import unique
from tests.sinks.kafka.conftest import SCHEMA, Bench, write_id

import tidegauge.sinks.kafka.writer as writer_module
from tidegauge.errors.base import Transient
from tidegauge.errors.kafkasink import TransactionFailed
from tidegauge.sinks import KafkaSink
from tidegauge.testing import KafkaBroker


def test_a_commit_that_the_broker_does_not_answer_is_transient_and_seen_once(
    own_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "PATIENCE", 1.0)
    sink = KafkaSink(own_broker.servers, topic=unique("away"), partitions=1, staging=str(tmp_path))
    bench = Bench(own_broker.servers, sink)
    table = bench.open()
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "PATIENCE", 30.0)
        bench.commit(table, 0, 1)
    files, write = bench.stage([1]), write_id()
    commit = writer_module.Writer.commit

    def without_broker(*arguments: Any) -> None:
        own_broker.kill()  # everything else was sent
        commit(*arguments)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(writer_module.Writer, "commit", without_broker)
            with pytest.raises(TransactionFailed):
                table.commit(1, 2, SCHEMA, files, write=write)
    finally:
        own_broker.start()
    monkeypatch.setattr(writer_module, "PATIENCE", 30.0)
    deadline = time.monotonic() + 100
    while table.upper < 2:  # as the flow would
        with suppress(Transient):
            table.commit(1, 2, SCHEMA, files, write=write)
        assert time.monotonic() < deadline
    assert table.upper == 2
    assert bench.rows() == [("ada", 0), ("ada", 1)]
