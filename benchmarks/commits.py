"""What one more commit to a Delta table costs, in a young table and in one of 100,000 epochs; and opening it.

The tables have one file and one entry of the log for each epoch, written as the sink writes them, and one checkpoint.
Each age gets the same commits of one staged row, on the disk, synchronised, of which one begins a checkpoint beside
those that follow. Then the output is opened and asked how much it holds, as `status` does. The peer is delta-rs's own
append (`write_deltalake`) of that row, to a copy of the table; it does not synchronise.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.figures import Figure
from benchmarks.room import Room
from tidegauge.sinks import DeltaSink, OutputId, StagedFile
from tidegauge.sinks.delta.entry import changing
from tidegauge.sinks.delta.view import holding
from tidegauge.sinks.protocol import Volume

__all__ = ["measure"]

_OUTPUT = OutputId("bench", "orders", "a" * 32)
_SCHEMA = pa.schema([("id", pa.int64()), ("user", pa.string()), ("_epoch", pa.int64())])


def _row(epoch: int) -> Any:
    return pa.record_batch([[epoch], ["ada"], [epoch]], schema=_SCHEMA)


def _staged(path: str, epoch: int) -> list[StagedFile]:
    stager = DeltaSink(path).stage(_SCHEMA, job=f"{epoch:032x}", task=0)
    stager.write(_row(epoch))
    return stager.close()


def _grown(path: str, epochs: int) -> None:
    """Make a table of so many epochs, each one entry of the log."""
    files = _staged(path, 0)
    DeltaSink(path).open(_OUTPUT).commit(0, 1, _SCHEMA, files, write="0")
    owners = str(_OUTPUT), f"{_OUTPUT}@{_OUTPUT.incarnation}"
    volume = Volume.of(files)
    for epoch in range(1, epochs):
        file = StagedFile(f"part-{epoch:032x}-00000-000.parquet", 1, files[0].bytes, epoch, epoch)
        said = files[0].statistics.replace('"_epoch":0', f'"_epoch":{epoch}')
        volume += Volume.of([file])
        about = {"flow": "bench", "output": "orders", "lower": epoch, "upper": epoch + 1, "write": str(epoch)}
        about |= holding(volume)
        text = changing([(file, 0, said)], [], dict.fromkeys(owners, epoch), about, milliseconds=0)
        Path(path, "_delta_log", f"{epoch:020d}.json").write_text(text)
    DeltaTable(path).create_checkpoint()


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return (time.perf_counter() - begun) * 1000


def _commits(path: str, epochs: int, count: int) -> tuple[list[float], float]:
    """Return the milliseconds of each commit, and those that were waited for a checkpoint in the end."""
    table, taken = DeltaSink(path).open(_OUTPUT), []
    for epoch in range(epochs, epochs + count):
        files = _staged(path, epoch)
        taken.append(_timed(lambda: table.commit(epoch, epoch + 1, _SCHEMA, files, write=str(epoch))))  # noqa: B023
    return taken, _timed(table.end)


def _appends(path: str, epochs: int, count: int) -> list[float]:
    rows = [pa.Table.from_batches([_row(epoch)]) for epoch in range(epochs, epochs + count)]
    table = DeltaTable(path)
    return [_timed(lambda: write_deltalake(table, row, mode="append")) for row in rows]  # noqa: B023


def measure(room: Room) -> list[Figure]:
    """Commit to tables of growing age."""
    figures = []
    count = room.size(120, 20)
    for epochs in (100, room.size(10_000, 500), room.size(100_000, 1_000)):
        room.say(f"a table of {epochs:,} epochs")
        ours, peers = str(room.folder / f"ours{epochs}"), str(room.folder / f"peer{epochs}")
        _grown(ours, epochs)
        shutil.copytree(ours, peers)
        commits, ending = _commits(ours, epochs, max(count, epochs // 100 + 20))
        opening = [_timed(lambda: DeltaSink(ours).open(_OUTPUT).volume()) for _ in range(7)]  # noqa: B023
        whole = [_timed(lambda: DeltaTable(ours).get_add_actions()) for _ in range(3)]  # noqa: B023
        appends = _appends(peers, epochs, room.size(12, 4))
        note = f"{epochs:,} epochs"
        figures += [
            Figure(
                f"one more commit after {note}",
                "ms",
                tuple(commits),
                tuple(appends),
                "write_deltalake",
                note=f"then {ending:.0f} ms for a checkpoint",
            ),
            Figure(
                f"opening an output after {note}, and what it holds",
                "ms",
                tuple(opening),
                tuple(whole),
                "DeltaTable().get_add_actions()",
            ),
        ]
        shutil.rmtree(ours)
        shutil.rmtree(peers)
    return figures
