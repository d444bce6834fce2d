"""What live epochs notice of a past of 100,000,000 records that is read beside them, on Spark: five minutes.

The records are small, a number each, so that they fit on a disk. They have epochs of 8 MiB, as in `beside`. A live
epoch is a file of ten records. The past is paused for every other thirty of them, and those are its peer.
"""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

import tidegauge as tg
from benchmarks.data import land
from benchmarks.epoch import ROWS
from benchmarks.figures import Figure, Goal
from benchmarks.late.beside import in_turns
from benchmarks.late.reading import EPOCH
from benchmarks.room import Room, spark_session
from tidegauge.engine.spark.engine import SparkEngine

__all__ = ["measure"]

_FIRST: Final = 100_000_000
"""All numbers have as many digits."""
_FORM: Final = b'{"id":000000000}\n'
_FILES: Final = 8


def lines(first: int, count: int) -> bytes:
    """Return the records `first` to `first + count - 1`.

    >>> lines(7, 2)
    b'{"id":100000007}\\n{"id":100000008}\\n'
    """
    made = np.tile(np.frombuffer(_FORM, np.uint8), (count, 1))
    numbers = np.arange(_FIRST + first, _FIRST + first + count)
    for place in range(9):
        made[:, len(_FORM) - 3 - place] = ord("0") + numbers // 10**place % 10
    return made.tobytes()


def _flow(landing: Path, target: Path, *, late: int, tick: float = 0.5) -> tg.Dataflow:
    made = tg.Dataflow("bench", store=f"sqlite:///{target}/store.db", tick=tick)
    source = tg.FileSource(f"{landing}/*.jsonl", format=tg.Json("id long"), max_bytes_per_epoch=EPOCH)
    records = made.source("records", source)
    for name in ("first", *(f"late-{number}" for number in range(late))):
        made.sink(name, records, tg.DeltaSink(str(target / name)))
    return made


def measure(room: Room) -> list[Figure]:
    """Measure it once, in about ten turns."""
    total, block = room.size(100_000_000, 10_000_000), room.size(30, 2)
    landing = room.fresh("landing")
    landing.mkdir()
    for number in range(_FILES):
        with open(landing / f"records-{number}.jsonl", "wb") as out:
            for first in range(number * total // _FILES, (number + 1) * total // _FILES, 1_000_000):
                out.write(lines(first, min(1_000_000, (number + 1) * total // _FILES - first)))

    def bring(number: int) -> None:
        land(landing, f"z{number:06d}.jsonl", lines(total + number * ROWS, ROWS))

    with spark_session() as session:
        found = in_turns(room, SparkEngine(session), partial(_flow, landing), bring, block=block)
    return [
        Figure(
            f"p99 of live epochs while {total:,} records are read, on Spark",
            "ms",
            ours=(found.p99(found.beside),),
            peer=(found.p99(found.alone),),
            peer_name="alone",
            goal=Goal("ratio", "<=", 1.2),
            note=f"{len(found.beside)} epochs beside {len(found.alone)}",
        ),
        Figure(
            "median of live epochs meanwhile",
            "ms",
            ours=(statistics.median(found.beside),),
            peer=(statistics.median(found.alone),),
            peer_name="alone",
        ),
        Figure("until the other table is whole", "s", ours=(found.whole,)),
    ]
