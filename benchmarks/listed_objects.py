"""A hundred thousand objects in a store: what listings cost that find all, nothing or one, and the memory.

The peer is the client alone: it lists the same objects, in the same process, and throws them away. The store
(`quick_store`) is a process of its own, and the manifests are staged in it, too. The requests are those of one more
listing. The memory is the peak of the whole process, before which all objects were listed several times.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Final

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.listings import Run
from benchmarks.quick_store import BUCKET, asked, quick_store
from benchmarks.room import Room
from tidegauge.objects.client import client, obstore
from tidegauge.objects.path import ObjectPath
from tidegauge.remap.binding import Bound

__all__ = ["measure"]

_FOLDER: Final = 1000
_PEER: Final = "obstore, listing alone"
_SETTINGS: Final = {
    "AWS_ACCESS_KEY_ID": "tide",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


def _put(name: str) -> None:
    ObjectPath.of(f"s3://{BUCKET}/{name}").put(b'{"n": 1}\n')


def _thrown_away(count: int) -> float:
    """Let the client list everything, and return the seconds."""
    begun = time.perf_counter()
    found = sum(len(page) for page in obstore.list(client(f"s3://{BUCKET}"), "in/", chunk_size=1000))
    if found < count:
        raise RuntimeError(f"{found} objects were listed of {count}")
    return time.perf_counter() - begun


def measure(room: Room) -> list[Figure]:
    """List many objects."""
    count = room.size(100_000, 3_000)
    with quick_store(count, _FOLDER) as url:
        os.environ |= {**_SETTINGS, "AWS_ENDPOINT_URL": url}
        room.say(f"{count:,} objects are there")
        return _figures(url, count, turns=room.size(5, 1))


def _figures(url: str, count: int, *, turns: int) -> list[Figure]:
    source = tg.ListingSource(
        f"s3://{BUCKET}/in/**/*.jsonl", format=tg.Json("n long"), staging=f"s3://{BUCKET}/listings"
    ).placed("shop", "orders")
    run = Run(source, Bound())
    _thrown_away(count)
    first, alone = run.listed(), _thrown_away(count)
    same, one, again = (list[tuple[float, float]]() for _ in range(3))
    for turn in range(turns):
        same.append((run.listed(), _thrown_away(count)))
        _put(f"in/{turn:04}/new.jsonl")
        one.append((run.listed(), _thrown_away(count)))
        again.append((Run(source, run.bound).listed(), _thrown_away(count)))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    _put("in/0001/last.jsonl")
    asked(url)
    run.listed()
    requests = ", ".join(f"{number} {kind}" for kind, number in sorted(asked(url).items()))
    return [
        Figure(f"the first listing of {count:,} objects, until all is bound", "s", (first,), (alone,), _PEER),
        _figure("a listing that finds nothing new", same),
        _figure("a listing that finds one object", one, note=requests),
        _figure("the first listing of a new run, with nothing new", again),
        Figure("peak memory of the process", "MiB", (memory,), goal=Goal("ours", "<=", 300.0)),
    ]


def _figure(what: str, found: list[tuple[float, float]], *, note: str = "") -> Figure:
    ours, peer = zip(*found, strict=True)
    return Figure(what, "s", ours, peer, _PEER, note=note)
