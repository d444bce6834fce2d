"""T63 with a real driver: killed at any instant around a commit, it loses and doubles no message."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sinks.kafka import killed_drivers
from tests.sinks.kafka.conftest import consumed

import tidegauge as tg
from tidegauge.errors.sinks import OutputIsNoTable
from tidegauge.testing import Endpoint

STRIKES = [
    ["before transaction", 0],
    ["after transaction", 0],
    ["before commit output", 0],
    ["after stage", 0],
    ["after commit output", 0],
    ["before transaction", 0],
    ["before publish", 0],
    ["after transaction", 0],
    ["after publish", 0],
]


@pytest.mark.long
def test_t63_a_driver_killed_around_its_commits_writes_every_message_once(
    kafka_broker: Endpoint, topic_name: str, tmp_path: Path
) -> None:
    command = {"root": str(tmp_path), "servers": kafka_broker.servers, "topic": topic_name, "strikes": STRIKES}
    program = [sys.executable, "-m", "tests.sinks.kafka.killed_drivers", json.dumps(command)]
    result = subprocess.run(program, check=False, capture_output=True, text=True, timeout=200)
    assert [int(line) for line in result.stdout.split()] == [-signal.SIGKILL] * len(STRIKES) + [0], result.stderr

    rows = killed_drivers.LINES * (len(STRIKES) + 1)
    flow = killed_drivers.make(tmp_path, kafka_broker.servers, topic_name)
    found = [(message.row["k"], message.epoch) for message in consumed(kafka_broker.servers, topic_name)]
    table = tg.read_arrow(flow, "table").select(["k", "_epoch"]).to_pylist()
    assert sorted(found) == sorted((row["k"], row["_epoch"]) for row in table)
    assert sorted(k for k, _ in found) == list(range(rows))
    assert not [path for path in (tmp_path / "staging").rglob("*") if path.is_file()]

    report = tg.status(flow)
    assert [(output.name, output.state, output.rows) for output in report.outputs] == [
        ("topic", "live", rows),
        ("table", "live", rows),
    ]
    assert set(tg.explain(flow, 0).rows) == {"table"}
    with pytest.raises(OutputIsNoTable):
        tg.read_arrow(flow, "topic")
