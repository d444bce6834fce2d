"""Live epochs with an object store 20 ms away: epochs a second, and the requests that one takes.

The server is the tests' own (moto, which takes one request at a time), on this machine, behind the tests' proxy,
which holds each request up for 20 ms. A file of ten lines lands; when the table holds it the next one lands. So an
epoch is one job and one commit. Once the table is in the store and the files on a disk, once the other way round;
there the source asks for its listing at each look, and those requests are left out.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.s3 import Lake, S3Server
from tests.s3_proxy import Proxy

import tidegauge as tg
from benchmarks.data import COLUMNS, land, lines
from benchmarks.figures import Figure
from benchmarks.flows import TICK, Driver
from benchmarks.room import Room
from tidegauge.engine.local import LocalEngine
from tidegauge.objects.path import ObjectPath
from tidegauge.testing.jars import cache

__all__ = ["measure"]

_ROWS: Final = 10
_LATENCY: Final = 0.02


def _epochs(room: Room, proxy: Proxy, made: tg.Dataflow, bring: Callable[[int], object]) -> tuple[list[float], Any]:
    """Return the seconds of each epoch but the first ones, and the requests of them, by kind, without listings."""
    warm, count = room.size(5, 2), room.size(40, 5)
    driver, taken = Driver(made, LocalEngine()), list[float]()
    try:
        for number in range(warm + count):
            if number == warm:
                proxy.asked.clear()
            begun = time.perf_counter()
            bring(number)
            driver.wait_published(number + 1)
            if number >= warm:
                taken.append(time.perf_counter() - begun)
        asked = Counter(ask.split()[0] for ask in proxy.asked if not _landing_or_look(ask))
    finally:
        driver.stop()
    return taken, {kind: round(number / count, 1) for kind, number in sorted(asked.items())}


def _landing_or_look(ask: str) -> bool:
    """Whether a request brings files, or looks for them."""
    return (ask.startswith("PUT") and "/in/" in ask) or ("list-type" in ask and "prefix=in" in ask)


def _bare(lake: Lake) -> float:
    """Return the milliseconds of a request, median."""
    taken = list[float]()
    for number in range(20):
        begun = time.perf_counter()
        ObjectPath.of(lake.at(f"bare/{number}")).put(b"x")
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


def _figures(what: str, taken: list[float], asked: Any, bare: float) -> list[Figure]:
    note = f"a bare request takes {bare:.0f} ms"
    rate = tuple(1 / seconds for seconds in taken)
    said = ", ".join(f"{number:g} {kind}" for kind, number in asked.items())
    return [
        Figure(f"epochs a second, {what}", "1/s", rate, note=note),
        Figure(f"requests an epoch, {what}", "", (float(sum(asked.values())),), note=said),
    ]


def measure(room: Room) -> list[Figure]:
    """Measure epochs whose table, and then whose files, are in a store."""
    program = cache(os.environ, "s3") / "bin" / "python"
    if not program.exists():
        room.say("left out: it takes moto, which 'make s3' fetches")
        return []
    server = S3Server(program)
    os.environ.update(server.environment())
    lake, proxy = Lake(server, server.bucket()), Proxy(server.url)
    os.environ["AWS_ENDPOINT_URL"] = proxy.url
    proxy.latency = _LATENCY
    try:
        bare = _bare(lake)
        figures = list[Figure]()
        for kind, sink in (("Delta", tg.DeltaSink), ("Parquet", tg.ParquetSink)):
            room.say(f"a table in the store, {kind}")
            folder = room.fresh("landing")
            folder.mkdir()
            source = tg.FileSource(f"{folder}/*.jsonl", format=tg.Json(COLUMNS))
            made = _flow(room, source, sink(lake.at(f"out/{kind}")))
            landing = _landing(folder)
            figures += _figures(f"a table in the store, {kind}", *_epochs(room, proxy, made, landing), bare)
        room.say("files in the store")
        made = _flow(
            room,
            tg.FileSource(lake.at("in/*.jsonl"), format=tg.Json(COLUMNS)),
            tg.DeltaSink(str(room.fresh("table"))),
        )

        def put(number: int) -> None:
            ObjectPath.of(lake.at(f"in/{number:06d}.jsonl")).put(lines(number * _ROWS, _ROWS))

        figures += _figures("files in the store", *_epochs(room, proxy, made, put), bare)
    finally:
        proxy.close()
        server.stop()
    return figures


def _flow(room: Room, source: Any, sink: Any) -> tg.Dataflow:
    target = room.fresh("store")
    target.mkdir()
    made = tg.Dataflow("bench", store=f"sqlite:///{target}/store.db", tick=TICK)
    made.sink("orders", made.source("orders", source), sink)
    return made


def _landing(folder: Path) -> Callable[[int], object]:
    return lambda number: land(folder, f"{number:06d}.jsonl", lines(number * _ROWS, _ROWS))
