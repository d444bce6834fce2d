"""A reader sees a table by key at one epoch, always: while it is written, maintained, and its driver is killed.

Writers append to lists: each record has the list of its key with one more number. The other output of the flow has
all records with their epochs, so it says what the table is at each of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.fs
import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError
from tests.sinks.iceberg.conftest import catalog_in
from tests.waiting import eventually

import tidegauge as tg

State: TypeAlias = frozenset[tuple[int, str, str, int]]
KEYS = 9
PARTS = ["a", "b", "c"]


def flow_of(folder: str, kind: str) -> tg.Dataflow:
    flow = tg.Dataflow("lists", store=f"sqlite:///{folder}/store.db", tick=0.05)
    form = tg.Json("k long, part string, items string")
    source = tg.FileSource(f"{folder}/in/*.jsonl", format=form, metadata=True, max_bytes_per_epoch=700)
    lists = flow.source("lists", source).select("k", "part", "items", "_offset")
    options: dict[str, Any] = {"envelope": "upsert", "key": "k", "order": "_offset"}
    options |= {"partition_by": "part"} if "parted" in kind else {}
    if "Iceberg" in kind:
        flow.sink("table", lists, tg.IcebergSink("shop.table", f"{folder}/lake", **options))
    else:
        flow.sink("table", lists, tg.DeltaSink(f"{folder}/table", **options))
    flow.sink("all", lists, tg.DeltaSink(f"{folder}/all"))
    return flow


def drive(folder: str, kind: str) -> None:
    flow_of(folder, kind).run(engine="local", maintain=0.2)


def rows_in(folder: str, kind: str) -> list[dict[str, Any]]:
    """Return the rows of the table by key, none where there is no table yet."""
    if "Iceberg" not in kind:
        return rows_of(f"{folder}/table") if DeltaTable.is_deltatable(f"{folder}/table") else []
    if not Path(folder, "lake", "catalog.db").exists():
        return []
    found = list[dict[str, Any]]()
    with suppress(NoSuchTableError, OperationalError), closing(catalog_in(f"{folder}/lake")) as catalog:
        found = catalog.load_table("shop.table").scan().to_arrow().to_pylist()
    return found


def rows_of(path: str) -> list[dict[str, Any]]:
    local = pyarrow.fs.SubTreeFileSystem(path, pyarrow.fs.LocalFileSystem())
    found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_dataset(filesystem=local).to_table().to_pylist()
    return found


def state(rows: list[dict[str, Any]]) -> State:
    found = frozenset((row["k"], row["part"], row["items"], row["_epoch"]) for row in rows)
    assert len(found) == len(rows) == len({row["k"] for row in rows}), f"a key is there twice: {rows}"
    return found


@dataclass
class Reader:
    """Reads the table in a loop, and keeps each state that it has seen, in order."""

    folder: str
    kind: str
    seen: list[State] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.is_set():
                now = state(rows_in(self.folder, self.kind))
                if not self.seen or now != self.seen[-1]:
                    self.seen.append(now)
        except BaseException as error:
            self.problem = error

    @contextmanager
    def reading(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()
        if self.problem is not None:
            raise self.problem


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["Delta", "parted Delta", "parted Iceberg"])
def test_every_read_is_the_table_at_one_epoch(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lists: dict[int, list[int]] = {}
    written = 0

    def write(count: int) -> None:
        """Append to lists, in one file; the last list of a key there is its whole list."""
        nonlocal written
        lines = []
        for number in range(written, written + count):
            key = number * number % KEYS
            lists.setdefault(key, []).append(number)
            row = {"k": key, "part": PARTS[number // 2 % 3], "items": ",".join(map(str, lists[key][-20:]))}
            lines.append(json.dumps(row) + "\n")
        with (folder / "lists.jsonl").open("a") as out:
            out.writelines(lines)
        written += count

    def moved(beyond: int, driver: subprocess.Popen[bytes]) -> bool:
        assert driver.poll() is None, "the driver has ended"
        return len(reader.seen) > beyond or reader.problem is not None

    reader = Reader(str(tmp_path), kind)
    of = "tests.sinks.keyed.test_seen_at_one_epoch"
    command = f"import sys; from {of} import drive; drive(sys.argv[1], sys.argv[2])"
    with reader.reading():
        for _ in range(5):
            driver = subprocess.Popen(
                [sys.executable, "-c", command, str(tmp_path), kind],
                cwd=Path(__file__).parents[3],
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            try:
                for _ in range(4):
                    at = len(reader.seen)
                    write(15)
                    eventually(partial(moved, at, driver), within=60)
            finally:
                os.kill(driver.pid, signal.SIGKILL)
                driver.wait()
        flow = flow_of(str(tmp_path), kind)
        flow.run("caught-up", engine="local")
        tg.maintain(flow)
    everything = sorted(rows_of(str(tmp_path / "all")), key=lambda row: (row["_epoch"], row["_offset"]))
    assert len(everything) == written
    states, now = dict[State, int](), dict[int, dict[str, Any]]()
    for at, row in enumerate(everything):
        now[row["k"]] = row
        if at + 1 == len(everything) or everything[at + 1]["_epoch"] > row["_epoch"]:
            states[state(list(now.values()))] = row["_epoch"]
    strange = [sorted(one) for one in reader.seen if one and one not in states]
    assert not strange, f"{len(strange)} of {len(reader.seen)} reads are of no epoch: {strange[0]}"
    order = [states[one] for one in reader.seen if one]
    assert order == sorted(order), "a later read has seen an earlier epoch"
    assert state(rows_in(str(tmp_path), kind)) == state(list(now.values()))
    assert len(order) > 10
