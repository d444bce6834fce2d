"""A connector for bytewax that somebody else wrote, on a real server: every message once, whenever a driver dies."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sources.bytewax.redis import Redis, redis_flow
from tests.sources.bytewax.redis import redis as redis
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.command import NotPublished

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
from pathlib import Path
from tests.sources.bytewax.redis import redis_flow
redis_flow(Path(sys.argv[1]), int(sys.argv[2])).run(engine="local")
"""


@pytest.mark.long
def test_messages_of_a_redis_come_once_whenever_the_driver_dies(tmp_path: Path, redis: Redis) -> None:
    chance, count = random.Random(11), 0

    def polls() -> int:
        return len([*(tmp_path / "staged").rglob("0*.json")])

    def copied() -> int:
        return int(redis.ask("XLEN copy")[0].removeprefix(b":"))

    def numbers() -> list[int]:
        try:
            return sorted(tg.read_arrow(redis_flow(tmp_path, redis.port), "numbers")["n"].to_pylist())
        except NotPublished:
            return []

    def lived_until(done: Callable[[], bool], how: signal.Signals) -> tuple[int, str]:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(redis.port)]
        told = {**os.environ, "PYTHONPATH": str(ROOT), "BYTEWAX_LICENSE": "1"}
        process = subprocess.Popen(command, cwd=ROOT, env=told, stderr=subprocess.PIPE, text=True)
        try:
            eventually(lambda: process.poll() is not None or done(), within=120)
            process.send_signal(how)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
        return process.returncode, said[-2000:]

    for life in range(5):
        for stream in "ab":
            more = chance.randint(1, 200)
            redis.add(stream, range(count, count + more))
            count += more
        staged, given = polls(), copied() + chance.randint(1, 50)
        if life % 2:  # in the midst of an epoch of the sink
            ended, said = lived_until(lambda given=given: copied() >= given, signal.SIGKILL)  # type: ignore[misc]
        else:
            ended, said = lived_until(lambda staged=staged: polls() > staged, signal.SIGKILL)  # type: ignore[misc]
        assert ended == -signal.SIGKILL, said
    wanted = [*range(count)]
    # It stops, though the connector waits for its server for ever.
    assert lived_until(lambda: numbers() == wanted, signal.SIGTERM)[0] == 0
    assert numbers() == wanted
    assert copied() >= count
