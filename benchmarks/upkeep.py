"""Bytes that maintenance writes again for each byte ingested over 10,000 epochs, and what live epochs cost beside it.

Each epoch has three rows, which are staged and committed as a flow does it, synchronised. First the table is
maintained after every hundred epochs, in the same process, and what is written again is counted; the peer is
delta-rs's own `optimize.compact()` after every hundred epochs of the same table. Then epochs are timed in a table
that nobody maintains, and in one that a second process maintains without a pause. In the end both are read, and must
agree.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.figures import Figure
from benchmarks.room import Room
from tidegauge.sinks import DeltaSink, OutputId
from tidegauge.sinks.protocol import job_mark

__all__ = ["measure"]

_OUTPUT: Final = OutputId("bench", "orders", "a" * 32)
_SCHEMA: Final = pa.schema([("id", pa.int64()), ("user", pa.string()), ("_epoch", pa.int64())])
_ROWS: Final = 3
_EVERY: Final = 100


def _job() -> str:
    return job_mark(_OUTPUT.incarnation) + uuid.uuid4().hex[:16]


class _Growing:
    """A table that gets an epoch after the other. bytes: of the files that were staged for it."""

    def __init__(self, path: Path) -> None:
        self.path: Final = str(path)
        self._sink: Final = DeltaSink(self.path)
        self._table: Final[Any] = self._sink.open(_OUTPUT)
        self.bytes = 0

    def epoch(self) -> float:
        """Stage and commit one; return the milliseconds that it took."""
        epoch = self._table.upper
        ids = list(range(epoch * _ROWS, (epoch + 1) * _ROWS))
        begun = time.perf_counter()
        stager = self._sink.stage(_SCHEMA, job=_job(), task=0)
        stager.write(pa.record_batch([ids, [f"user-{n}" for n in ids], [epoch] * _ROWS], schema=_SCHEMA))
        files = stager.close()
        self._table.commit(epoch, epoch + 1, _SCHEMA, files, write=_job())
        took = (time.perf_counter() - begun) * 1000
        self.bytes += sum(file.bytes for file in files)
        return took

    def close(self) -> None:
        self._table.end()


def _maintained(path: str) -> tuple[int, int]:
    """Maintain a table once; return the rows and bytes that were written again."""
    table, rows, size = DeltaSink(path).maintain(_OUTPUT), 0, 0
    while packs := table.plan():
        for pack in packs:
            files = table.stage(pack, job=_job())
            if table.commit(pack, files, write=_job()) is None:
                table.discard(files)
            else:
                rows, size = rows + pack.rows, size + sum(file.bytes for file in files)
    table.end()
    return rows, size


def _compacted(path: str) -> int:
    """Let delta-rs compact a table; return the bytes that it wrote again."""
    done = DeltaTable(path).optimize.compact()
    added = done["filesAdded"]  # as JSON text, in some versions
    added = json.loads(added) if isinstance(added, str) else added
    return int(added["avg"] * done["numFilesAdded"]) if done["numFilesAdded"] else 0


def _files(path: str) -> int:
    return len(DeltaTable(path).file_uris())


@contextmanager
def _beside(path: str) -> Iterator[None]:
    """Maintain a table in a process of its own, again and again."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.upkeep", path], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.communicate(b"\n", timeout=60)


def _again(room: Room, epochs: int) -> list[Figure]:
    ours, peer = _Growing(room.folder / "ours"), _Growing(room.folder / "peer")
    rows = size = theirs = 0
    for epoch in range(1, epochs + 1):
        ours.epoch()
        peer.epoch()
        if epoch % _EVERY == 0:
            some = _maintained(ours.path)
            rows, size = rows + some[0], size + some[1]
            theirs += _compacted(peer.path)
    ours.close()
    peer.close()
    assert DeltaTable(ours.path).to_pyarrow_table().num_rows == epochs * _ROWS
    note = f"rows: {rows / (epochs * _ROWS):.1f} times; {_files(ours.path)} files, {_files(peer.path)} of delta-rs's"
    return [
        Figure(
            f"bytes written again for each byte ingested, {epochs:,} epochs",
            "times",
            (size / ours.bytes,),
            (theirs / peer.bytes,),
            "optimize.compact()",
            note=note,
        )
    ]


def _live(room: Room, epochs: int) -> list[Figure]:
    alone, kept = _Growing(room.folder / "alone"), _Growing(room.folder / "kept")
    alone.epoch()
    kept.epoch()
    calm = sorted(alone.epoch() for _ in range(epochs))
    with _beside(kept.path):
        busy = sorted(kept.epoch() for _ in range(epochs))
    alone.close()
    kept.close()
    tables = [DeltaTable(one.path).to_pyarrow_table().sort_by("id") for one in (alone, kept)]
    assert tables[0].equals(tables[1])
    note = f"{_files(kept.path)} files instead of {_files(alone.path)}"
    return [
        Figure(
            f"a live epoch beside maintenance without a pause, {what}",
            "ms",
            (of(busy),),
            (of(calm),),
            "alone",
            note=note,
        )
        for what, of in (("median", statistics.median), ("p99", lambda taken: taken[len(taken) * 99 // 100]))
    ]


def measure(room: Room) -> list[Figure]:
    """Grow tables of small epochs, and keep them in shape."""
    return [*_again(room, room.size(10_000, 500)), *_live(room, room.size(2_000, 100))]


def _loop(path: str) -> None:
    """Maintain a table until something comes in."""
    import select

    while not select.select([sys.stdin], [], [], 0)[0]:
        _maintained(path)


if __name__ == "__main__":
    _loop(sys.argv[1])
