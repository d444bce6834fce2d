"""A flow moves from a disk to an object store when its paths change, and nothing else: one function makes both."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.flow.badinput import lines
from tests.s3 import Lake

import tidegauge as tg
from tidegauge.objects.path import ObjectPath

pytestmark = pytest.mark.long

EPOCHS = 5
ROOT = Path(__file__).parents[2]


def shop(place: str, store: str) -> tg.Dataflow:
    """The one flow: `place` is a folder or a bucket."""
    flow = tg.Dataflow("shop", store=store)
    plain = flow.source("plain", tg.FileSource(f"{place}/in/**/*.jsonl", format=tg.Json("n long, text string")))
    packed = flow.source("packed", tg.FileSource(f"{place}/in/**/*.jsonl.gz", format=tg.Json(), settle=0))
    columns = flow.source("columns", tg.FileSource(f"{place}/in/**/*.parquet", format=tg.Parquet(), settle=0))
    comma = flow.source("comma", tg.FileSource(f"{place}/in/day=*/*.csv", format=tg.Csv("n long, text string")))
    flow.sink("plain", plain, tg.DeltaSink(f"{place}/out/plain"))
    flow.sink("packed", packed, tg.DeltaSink(f"{place}/out/packed"))
    flow.sink("columns", columns, tg.DeltaSink(f"{place}/out/columns"))
    flow.sink("comma", comma, tg.DeltaSink(f"{place}/out/comma"))
    flow.sink("folder", plain, tg.ParquetSink(f"{place}/out/folder"))
    flow.sink("latest", plain, tg.DeltaSink(f"{place}/out/latest", envelope="upsert", key="text"))
    return flow


OUTPUTS = ("plain", "packed", "columns", "comma", "folder", "latest")


def files(number: int) -> Iterator[tuple[str, bytes]]:
    """The files that come before an epoch."""
    day, mine = f"in/day={number}", [10 * number + n for n in range(3)]
    yield f"{day}/a.jsonl", lines(*mine).encode()
    yield f"{day}/a.jsonl.gz", gzip.compress(lines(*mine).encode(), mtime=0)
    yield f"{day}/a.csv", b"n,text\n" + "".join(f'{n},"t\n{n}"\n' for n in mine).encode()
    out = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(mine, pa.int64())}), out)
    yield f"{day}/a.parquet", out.getvalue()


def to_disk(root: Path) -> Callable[[str, bytes], None]:
    def put(name: str, data: bytes) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    return put


def to_store(lake: Lake, folder: str) -> Callable[[str, bytes], None]:
    return lambda name, data: ObjectPath.of(lake.at(f"{folder}/{name}")).put(data)


def lived(
    place: str, store: str, put: Callable[[str, bytes], None], numbers: Any, *, engine: Any = "local"
) -> tg.Dataflow:
    """Run the flow until it has caught up, again for each new set of files."""
    for number in numbers:
        for name, data in files(number):
            put(name, data)
        flow = shop(place, store)
        flow.run(until="caught-up", engine=engine)
    return flow


def tables(flow: tg.Dataflow) -> dict[str, list[dict[str, Any]]]:
    return {
        name: sorted(tg.read_arrow(flow, name).to_pylist(), key=lambda row: (row["_epoch"], row["n"]))
        for name in OUTPUTS
    }


def test_the_tables_are_the_same_on_a_disk_and_in_a_store(tmp_path: Path, lake: Lake) -> None:
    here = lived(str(tmp_path / "here"), f"sqlite:///{tmp_path}/here.db", to_disk(tmp_path / "here"), range(EPOCHS))
    there = lived(lake.at("there"), f"sqlite:///{tmp_path}/there.db", to_store(lake, "there"), range(EPOCHS))
    assert tables(here) == tables(there)
    assert len(tables(there)["plain"]) == 3 * EPOCHS
    for epoch in range(EPOCHS):
        for name in OUTPUTS:
            old, new = (tg.read_arrow(flow, name, as_of=epoch).num_rows for flow in (here, there))
            assert old == new


def test_a_flow_that_runs_moves_with_its_store_its_files_and_its_tables(tmp_path: Path, lake: Lake) -> None:
    alone = lived(str(tmp_path / "alone"), f"sqlite:///{tmp_path}/a.db", to_disk(tmp_path / "alone"), range(EPOCHS))
    store = f"sqlite:///{tmp_path}/moved.db"
    lived(str(tmp_path / "moved"), store, to_disk(tmp_path / "moved"), range(3))
    for path in (tmp_path / "moved").rglob("*"):
        if path.is_file():
            ObjectPath.of(lake.at(f"moved/{path.relative_to(tmp_path / 'moved')}")).put(path.read_bytes())
    shutil.rmtree(tmp_path / "moved")
    moved = lived(lake.at("moved"), store, to_store(lake, "moved"), range(3, EPOCHS))
    assert tables(moved) == tables(alone)


def on_spark(place: str, store: str) -> None:
    """Lead the flow's life on a Spark of this process."""

    def put(name: str, data: bytes) -> None:
        ObjectPath.of(f"{place}/{name}").put(data)

    lived(place, store, put, range(2), engine="spark")


@pytest.mark.spark
def test_tasks_of_spark_read_and_write_there_too(tmp_path: Path, lake: Lake) -> None:
    """In a process of its own: the workers of a session have the environment in which it began, so its server."""
    here = lived(str(tmp_path / "here"), f"sqlite:///{tmp_path}/here.db", to_disk(tmp_path / "here"), range(2))
    place, store = lake.at("there"), f"sqlite:///{tmp_path}/there.db"
    code = "import sys; from tests.flow.test_from_disk_to_store import on_spark; on_spark(*sys.argv[1:])"
    command = [sys.executable, "-c", code, place, store]
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    assert tables(here) == tables(shop(place, store))
