"""Changes merged into a table by key: one large batch, a hundred small ones on few keys, some small ones on any keys.

Ours stages the changes as tasks do, commits them, and merges in the threads of the local engine. The peers merge the
same Arrow data: `DeltaTable.merge` of delta-rs, `MERGE` of Delta's own JAR on a Spark session, and that of Iceberg's
JAR, which writes files anew or adds files of deletes. Their tables are written in the order of their keys, which is
the best case for a merge that skips files by statistics. Each phase runs in a process of its own, because the kernel
keeps the peak of a process for its life; beside the peak is what the process held right before the merge. After each
phase a reader counts what is there, and all must agree; Spark, whose epochs take seconds each, is given a few of the
small ones on few keys only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.table import StaticTable

from benchmarks.figures import Figure, Goal
from benchmarks.peers.environments import Answering, Missing, answering, iceberg_python
from benchmarks.processes import peaks
from benchmarks.room import Room
from tidegauge.engine.local import LocalEngine
from tidegauge.errors.base import TidegaugeError
from tidegauge.sinks import DeltaSink, IcebergSink, OutputId, Sink
from tidegauge.testing.jars import DELTA, ICEBERG, class_path

__all__ = ["case", "measure"]

_OUTPUT: Final = OutputId("bench", "users", "a" * 32)
_PEERS: Final = {
    "delta-rs": "DeltaTable.merge",
    "Spark": "MERGE on Spark",
    "Iceberg": "MERGE of Iceberg on Spark",
    "Iceberg, on read": "MERGE of Iceberg on Spark, merged on read",
}
_OURS: Final = {
    "ours": ("", tuple(_PEERS)),
    "marking": ("by deletion vectors", tuple(_PEERS)),
    "ours on Iceberg": ("in Iceberg", ("Iceberg", "Iceberg, on read")),
}
"""Without deletion vectors, with them, and in a table of Iceberg; each with those that it is compared with."""
_SLOW: Final = ("Spark", "Iceberg", "Iceberg, on read")
_SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("n", pa.int64()), ("_epoch", pa.int64())]
)
_BATCH: Final = 65_536
_FEW: Final = 3
"""How many of the small epochs those on Spark merge."""
_HOT: Final = 1_000
"""How many keys the small epochs of few keys change."""

pc: Final[Any] = pyarrow.compute

Merge = Callable[[int, pa.Table], None]


def _rows(ids: Any, epoch: int) -> pa.Table:
    """Return a change for each key."""
    columns = [
        pa.array(ids),
        pa.array(np.char.add("user-", ids.astype(str))),
        pa.array((ids * 7 + epoch).astype(float)),
        pa.array(np.arange(len(ids))),
        pa.array(np.full(len(ids), epoch)),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def _loaded(rows: int) -> Iterator[pa.Table]:
    """Yield the first epoch in the order of its keys."""
    for start in range(0, rows, _BATCH):
        yield _rows(np.arange(start, min(rows, start + _BATCH)), 0)


def _phase(name: str, rows: int, changes: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the epochs of a phase: distinct keys in any order, a tenth of the large batch's being new."""
    chance = np.random.default_rng(len(name))
    if name == "large":
        new = changes // 10
        ids = [chance.permutation(rows)[: changes - new], np.arange(rows, rows + new)]
        yield 1, _rows(chance.permutation(np.concatenate(ids)), 1)
        return
    count, first, reach = (100, 2, _HOT) if name == "hot" else (10, 200, rows)
    for epoch in range(first, first + count):
        yield epoch, _rows(chance.choice(reach, 100, replace=False), epoch)


def _ours(side: str, path: str, resources: ExitStack) -> Merge:
    sink, engine = _sink(side, path), LocalEngine()
    resources.callback(engine.close)
    table: Any = sink.open(_OUTPUT)
    table.work_by(engine.work)

    def merge(epoch: int, rows: pa.Table) -> None:
        stager = sink.stage(_SCHEMA, job="a" * 16 + uuid.uuid4().hex[:16], task=0)
        for batch in rows.to_batches(max_chunksize=_BATCH):
            stager.write(batch)
        table.commit(table.upper, epoch + 1, _SCHEMA, stager.close(), write=uuid.uuid4().hex)

    return merge


def _sink(side: str, path: str) -> Sink:
    if side == "ours on Iceberg":
        return IcebergSink("bench.users", warehouse=path, envelope="upsert", key="id", order="n")
    return DeltaSink(path, envelope="upsert", key="id", order="n", deletion_vectors=side == "marking")


def _delta_rs(_side: str, path: str, _resources: ExitStack) -> Merge:
    def merge(_epoch: int, rows: pa.Table) -> None:
        merger = DeltaTable(path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return merge


def _spark(_side: str, path: str, resources: ExitStack) -> Merge:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", class_path(DELTA).replace(os.pathsep, ","))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    resources.callback(session.stop)

    def merge(_epoch: int, rows: pa.Table) -> None:
        changes = f"{path}-changes.parquet"
        pq.write_table(rows, changes)
        session.sql(
            f"MERGE INTO delta.`{path}` t USING parquet.`{changes}` s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    return merge


def _iceberg(side: str, path: str, resources: ExitStack) -> Merge:
    peer = resources.enter_context(_merging(side, path))

    def merge(_epoch: int, rows: pa.Table) -> None:
        changes = f"{path}-changes.parquet"
        pq.write_table(rows, changes)
        peer.ask("merge", changes)

    return merge


def _merging(side: str, path: str) -> AbstractContextManager[Answering]:
    mode = "merge-on-read" if side == "Iceberg, on read" else "copy-on-write"
    jars = class_path(ICEBERG).replace(os.pathsep, ",")
    return answering(iceberg_python(), "benchmarks.peers.merging_with_iceberg", jars, path, mode)


_SIDES: Final = {
    **dict.fromkeys(_OURS, _ours),
    "delta-rs": _delta_rs,
    "Spark": _spark,
    "Iceberg": _iceberg,
    "Iceberg, on read": _iceberg,
}


def load(side: str, path: str, rows: int) -> None:
    """Write the table that changes are merged into."""
    if side.startswith("Iceberg"):
        given = f"{path}-loaded.parquet"
        with pq.ParquetWriter(given, _SCHEMA) as writer:
            for part in _loaded(rows):
                writer.write_table(part)
        with _merging(side, path) as peer:
            peer.ask("load", given)
        Path(given).unlink()
        return
    if side not in _OURS:
        reader = pa.RecordBatchReader.from_batches(_SCHEMA, (b for t in _loaded(rows) for b in t.to_batches()))
        write_deltalake(path, reader, target_file_size=32 << 20)
        return
    sink, engine = _sink(side, path), LocalEngine()
    table: Any = sink.open(_OUTPUT)
    table.work_by(engine.work)
    stager = sink.stage(_SCHEMA, job="a" * 16 + uuid.uuid4().hex[:16], task=0)
    for part in _loaded(rows):
        for batch in part.to_batches():
            stager.write(batch)
    table.commit(0, 1, _SCHEMA, stager.close(), write=uuid.uuid4().hex)
    engine.close()


def case(side: str, phase: str, path: str, rows: str, changes: str) -> dict[str, Any]:
    """Run a phase in this process; return its seconds by epoch, and the peaks in bytes."""
    if phase == "load":
        load(side, path, int(rows))
        return {"seconds": []}
    taken = []
    with ExitStack() as resources:
        merge = _SIDES[side](side, path, resources)
        epochs = list(islice(_phase(phase, int(rows), int(changes)), _FEW if side in _SLOW else None))
        before = psutil.Process().memory_info().rss
        with peaks() as found:
            for epoch, given in epochs:
                begun = time.perf_counter()
                merge(epoch, given)
                taken.append(time.perf_counter() - begun)
        together = sum(found.together.values())
        return {"seconds": taken, "before": before, "together": together, "one": dict(found.one)}


def _apart(*arguments: object) -> dict[str, Any]:
    """Run a phase in a process of its own."""
    code = "import json, sys; from benchmarks.upserts import case; print(json.dumps(case(*sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _held(side: str, path: str) -> tuple[int, int, float]:
    """Return what a table holds: rows, and the sums of their keys and of what their last changes said: all exact."""
    if "Iceberg" in side:
        [*_, newest] = sorted(Path(path, "bench", "users", "metadata").glob("*.metadata.json"), key=_written)
        rows = StaticTable.from_metadata(str(newest)).scan(selected_fields=("id", "amount")).to_arrow()
        return rows.num_rows, pc.sum(rows["id"]).as_py(), pc.sum(rows["amount"]).as_py()
    asked = "SELECT count(*) AS r, sum(id) AS k, sum(amount) AS t FROM held"
    found = pa.table(QueryBuilder().register("held", DeltaTable(path)).execute(asked)).to_pylist()[0]
    return found["r"], found["k"], found["t"]


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns


def measure(room: Room) -> list[Figure]:
    """Measure ours and the peers, phase by phase."""
    rows, changes = room.size(10_000_000, 200_000), room.size(1_000_000, 20_000)
    sides = [*_OURS, "delta-rs"]
    try:
        class_path(DELTA)
        sides.append("Spark")
        class_path(ICEBERG)
        iceberg_python()
        sides += ["Iceberg", "Iceberg, on read"]
    except (TidegaugeError, Missing) as error:
        room.say(f"only with {', '.join(sides)}: {error}")
    paths = {side: str(room.fresh(side.replace(", ", "-").replace(" ", "-"))) for side in sides}
    for side in sides:
        _apart(side, "load", paths[side], rows, changes)
        room.say(f"{side}: {rows:,} rows are there")
    figures = []
    for phase in ("large", "hot", "spread"):
        found = {}
        for side in sides if phase != "spread" else [one for one in sides if one not in _SLOW]:
            found[side] = _apart(side, phase, paths[side], rows, changes)
            seconds, peak = found[side]["seconds"], found[side]["together"] >> 20
            room.say(f"{side}, {phase}: {sum(seconds):.2f} s in {len(seconds)} epochs, {peak} MiB")
        same = {_held(side, paths[side]) for side in sides if phase == "large" or side not in _SLOW}
        if len(same) > 1:
            raise RuntimeError(f"after {phase} the tables differ: {same}")
        figures += _figures(phase, found, rows, changes)
    for path in paths.values():
        shutil.rmtree(path, ignore_errors=True)
        Path(f"{path}-changes.parquet").unlink(missing_ok=True)
    return figures


def _figures(phase: str, found: dict[str, dict[str, Any]], rows: int, changes: int) -> list[Figure]:
    what = {
        "large": f"{changes:,} changes into {rows:,} rows",
        "hot": f"an epoch of 100 changes to {_HOT:,} neighbours of {rows:,} rows",
        "spread": f"an epoch of 100 changes to any of {rows:,} rows",
    }[phase]
    figures = []
    compared = [(ours, peer) for ours, (_, peers) in _OURS.items() for peer in peers if peer in found]
    for ours, peer in compared:
        name, way = _PEERS[peer], _OURS[ours][0]
        how = f"{what}, {way}" if way else what
        figures += [
            Figure(how, "s", tuple(found[ours]["seconds"]), tuple(found[peer]["seconds"]), name),
            Figure(
                f"peak memory, {how}",
                "MiB",
                (found[ours]["together"] / 2**20,),
                (found[peer]["together"] / 2**20,),
                name,
                goal=Goal("ratio", "<=", 1.0),
                note=f"{found[ours]['before'] >> 20} MiB before the first merge",
                details={side: found[side].get("one") for side in (ours, peer)},
            ),
        ]
    return figures
