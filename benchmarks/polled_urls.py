"""A thousand addresses that are polled each second by one flow: the driver's processor time, and how late polls are.

Each is an `HttpSource` of its own; a union of all has one table. The server is a process of its own. It answers 304
to each poll but the first, and notes when the next one of an address comes. A poll is late by what is over a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import tidegauge as tg
from benchmarks.figures import Figure
from benchmarks.flows import Driver
from benchmarks.room import Room
from tidegauge.engine.local import LocalEngine

__all__ = ["measure", "serve"]

_BODY: Final = b'{"n": 1}\n'
_FIRST: Final = b'HTTP/1.1 200 OK\r\nETag: "A"\r\nContent-Length: %d\r\n\r\n%s' % (len(_BODY), _BODY)
_SAME: Final = b'HTTP/1.1 304 Not Modified\r\nETag: "A"\r\nContent-Length: 0\r\n\r\n'


def serve() -> None:
    """Answer polls until the input ends: the server's process. `/late` has the seconds that each was late."""
    last, late = dict[bytes, float](), list[float]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            path = head.split(b" ", 2)[1]
            if path == b"/late":
                body = json.dumps(late).encode()
                late.clear()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            else:
                now = time.monotonic()
                if path in last:
                    late.append(now - last[path] - 1.0)
                last[path] = now
                writer.write(_SAME if b"\r\nif-none-match:" in head.lower() else _FIRST)
            await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2000)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        os._exit(0)  # with all that are connected

    asyncio.run(run())


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


@contextmanager
def _served() -> Iterator[str]:
    command = [sys.executable, "-c", "from benchmarks.polled_urls import serve; serve()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.communicate()  # which ends its input


def _late(url: str) -> list[float]:
    """Return by how many seconds polls were late since this was asked last."""
    with urllib.request.urlopen(f"{url}/late", timeout=60) as answer:
        return [float(one) for one in json.load(answer)]


def measure(room: Room) -> list[Figure]:
    """Let a flow poll many addresses for a while."""
    count, seconds = room.size(1000, 20), room.size(60, 5)
    os.environ["NO_PROXY"] = "127.0.0.1"
    with _served() as url:
        made = tg.Dataflow("rates", store=f"sqlite:///{room.fresh('store')}/rates.db", tick=0.2)
        staging, rows = room.fresh("staging"), tg.Json("n long")
        polled = [
            made.source(f"s{n}", tg.HttpSource(f"{url}/{n}", format=rows, staging=staging, every=1.0))
            for n in range(count)
        ]
        made.sink("rates", made.source("all", tg.union(*polled)), tg.ParquetSink(str(room.fresh("rates"))))
        driver = Driver(made, LocalEngine())
        try:
            driver.wait_published(1, patience=300.0)
            time.sleep(seconds / 4)
            _late(url)
            begun, used, epochs = time.perf_counter(), time.process_time(), driver.published
            time.sleep(seconds)
            passed, cpu = time.perf_counter() - begun, time.process_time() - used
            late = sorted(_late(url))
            room.say(f"{driver.published - epochs} epochs meanwhile")
        finally:
            driver.stop()
    share, rate = cpu / passed, len(late) / passed
    return [
        Figure(f"polls of {count:,} addresses", "1/s", (rate,)),
        Figure("the driver's processor time, of one core", "%", (100 * share,)),
        Figure("processor time of a poll", "ms", (1000 * cpu / max(1, len(late)),)),
        Figure("a poll is late by, median", "s", (late[len(late) // 2],)),
        Figure("99 of 100 polls are late by less than", "s", (late[len(late) * 99 // 100],)),
    ]
