"""Twenty thousand objects in a store: what listings cost that find all, nothing or one, and the memory.

The store is the S3-compatible server of the tests, in a process of its own, which takes one request at a time, and
goes through all its objects for each page of a listing: most of the time is the server's. The
manifests are staged in the store, too. A proxy counts the requests of one more listing, whose time is not taken. The
memory is the peak of the whole process.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from typing import Final

from tests.s3 import Lake, S3Server
from tests.s3_proxy import Proxy

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.listings import Run
from benchmarks.room import Room
from tidegauge.objects.client import at_once
from tidegauge.objects.path import ObjectPath
from tidegauge.remap.binding import Bound
from tidegauge.testing.jars import cache

__all__ = ["measure"]

_FOLDER: Final = 1000


def _put(lake: Lake, name: str) -> None:
    ObjectPath.of(lake.at(name)).put(b'{"n": 1}\n')


def measure(room: Room) -> list[Figure]:
    """List many objects."""
    count = room.size(20_000, 3_000)
    server = S3Server(cache(os.environ, "s3") / "bin" / "python")
    try:
        os.environ |= server.environment()
        lake = Lake(server, server.bucket())
        names = [f"in/{n // _FOLDER:04}/{n % _FOLDER:04}.jsonl" for n in range(count)]
        for first in range(0, count, 10_000):
            list(at_once(lambda name: _put(lake, name), names[first : first + 10_000]))
        room.say(f"{count:,} objects are there")
        return _figures(lake, count)
    finally:
        server.stop()


def _figures(lake: Lake, count: int) -> list[Figure]:
    source = tg.ListingSource(lake.at("in/**/*.jsonl"), format=tg.Json("n long"), staging=lake.at("listings")).placed(
        "shop", "orders"
    )
    run = Run(source, Bound())
    first = run.listed()
    same = [run.listed() for _ in range(3)]
    _put(lake, "in/0001/new.jsonl")
    one = run.listed()
    again = Run(source, run.bound).listed()
    proxy = Proxy(lake.server.url)
    os.environ["AWS_ENDPOINT_URL"] = proxy.url
    _put(lake, "in/0002/new.jsonl")
    proxy.asked.clear()
    run.listed()
    asked = Counter(ask.split()[0] for ask in proxy.asked)
    proxy.close()
    os.environ["AWS_ENDPOINT_URL"] = lake.server.url
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    said = ", ".join(f"{number} {kind}" for kind, number in sorted(asked.items()))
    return [
        Figure(f"the first listing of {count:,} objects, until all is bound", "s", (first,)),
        Figure("a listing that finds nothing new", "s", tuple(same)),
        Figure("a listing that finds one object", "s", (one,), note=said),
        Figure("the first listing of a new run, with nothing new", "s", (again,)),
        Figure("peak memory of the process", "MiB", (memory,), goal=Goal("ours", "<=", 300.0)),
    ]
