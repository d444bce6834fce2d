"""A table by key on a server is a dictionary, whatever the tasks, batches and commits, and however late it is."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.postgres import Server, new_database
from tests.sinks.postgres.conftest import OUTPUT, seen, write_id

from tidegauge.sinks import PostgresSink, StagedFile
from tidegauge.sinks.protocol import job_mark

_PLACE = [("_partition", pa.string()), ("_offset", pa.int64()), ("_op", pa.string()), ("_epoch", pa.int64())]
SCHEMA = pa.schema([("id", pa.int32()), ("part", pa.string()), ("value", pa.int64()), *_PLACE])
Change = tuple[int, str, int | None]
CHANGES = st.tuples(
    st.integers(0, 4), st.sampled_from(["insert", "update", "delete", "before"]), st.none() | st.integers(0, 99)
)
EPOCHS = st.lists(st.lists(CHANGES, max_size=6), min_size=1, max_size=6)


@dataclass
class Dictionary:
    """What a table should hold: of each key the value of its last change, and the epoch of that."""

    held: dict[int, tuple[int | None, int]] = field(default_factory=dict)

    def take(self, epoch: int, changes: Sequence[Change], least: int = 0) -> None:
        for key, op, value in changes:
            if op == "delete":
                self.held.pop(key, None)
            elif op != "before":
                self.held[key] = value, max(epoch, least)


def row(epoch: int, offset: int, change: Change) -> dict[str, Any]:
    key, op, value = change
    where = {"_partition": "p", "_offset": offset, "_op": op, "_epoch": epoch}
    return {"id": key, "part": "ab"[key % 2], "value": value, **where}


def stage(sink: PostgresSink, rows: list[dict[str, Any]], least: int, chance: random.Random) -> list[StagedFile]:
    """Stage rows in any order, in one or several tasks and batches."""
    chance.shuffle(rows)
    job, files = job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], list[StagedFile]()
    for task in range(tasks := chance.randint(1, 3)):
        stager = sink.stage_from(least, SCHEMA, job=job, task=task)
        for start in range(0, len(part := rows[task::tasks]), 2):
            stager.write(pa.RecordBatch.from_pylist(part[start : start + 2], schema=SCHEMA))
        files += stager.close()
    return files


def check(
    sink: PostgresSink, epochs: Sequence[Sequence[Change]], past: int, least: int, chance: random.Random
) -> None:
    """Commit epochs, the first `past` of them as one span and with `_epoch` of at least `least`, as a late table."""
    opened, wanted, lower = sink.open(OUTPUT), Dictionary(), 0
    while lower < len(epochs):
        upper = past if lower < past else min(len(epochs), lower + chance.randint(1, 3))
        at = least if lower < past else 0
        rows = list[dict[str, Any]]()
        for epoch in range(lower, upper):
            wanted.take(epoch, epochs[epoch], at)
            rows += [row(epoch, offset, change) for offset, change in enumerate(epochs[epoch])]
        files, write = stage(sink, rows, at, chance), write_id()
        for _ in range(chance.randint(1, 2)):  # as after an answer that was lost
            opened.commit(lower, upper, SCHEMA, files, write=write)
        lower = upper
    found = {one["id"]: (one["value"], one["_epoch"]) for one in seen(sink.dsn, sink.table)}
    assert found == wanted.held
    assert (sink.open(OUTPUT).upper, opened.volume().rows) == (len(epochs), len(found))


class Tables:
    """New tables in one database."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.address = server.address(new_database(server))
        self.folder = folder

    def sink(self) -> PostgresSink:
        how: dict[str, Any] = {"envelope": "upsert", "key": ["id", "part"], "order": "_offset"}
        return PostgresSink(self.address, f"t{uuid.uuid4().hex}", staging=str(self.folder), **how)


@pytest.fixture(scope="module")
def tables(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(postgres, tmp_path_factory.mktemp("staging"))


@deep(60)
@given(epochs=EPOCHS, past=st.integers(0, 6), stamped=st.booleans(), chance=st.randoms(use_true_random=False))
def test_a_table_by_key_is_a_dictionary(
    tables: Tables, epochs: list[list[Change]], past: int, stamped: bool, chance: random.Random
) -> None:
    past = min(past, len(epochs))
    check(tables.sink(), epochs, past, past - 1 if stamped and past else 0, chance)
