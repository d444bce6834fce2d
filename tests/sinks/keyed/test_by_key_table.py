"""What a table by key does beside its commits: keep, sweep, remove, and be made again while it is written to."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tidegauge.errors.sinks import (
    NothingTakenOut,
    StagedFileMissing,
    TableChangedByOthers,
    TableNotRemovable,
    TableSchemaChanged,
)
from tidegauge.sinks import DeltaSink, OutputId, StagedFile
from tidegauge.sinks.delta import bykey
from tidegauge.sinks.keyed.planning import Sizes
from tidegauge.sinks.protocol import job_mark

OUTPUT = OutputId("shop", "users", "a" * 32)
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("_epoch", pa.int64())])


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return DeltaSink(str(tmp_path / "lake" / "users"), envelope="upsert", key="user", order="n")


def stage(sink: DeltaSink, epoch: int, **numbers: int) -> list[StagedFile]:
    stager = sink.stage(SCHEMA, job=job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], task=0)
    columns = {"user": list(numbers), "n": list(numbers.values()), "_epoch": [epoch] * len(numbers)}
    stager.write(pa.RecordBatch.from_pydict(columns, SCHEMA))
    return stager.close()


def commit(table: Any, sink: DeltaSink, epoch: int, **numbers: int) -> None:
    table.commit(epoch, epoch + 1, SCHEMA, stage(sink, epoch, **numbers), write=uuid.uuid4().hex)


def rows(sink: DeltaSink) -> dict[str, int]:
    found = DeltaTable(sink.path).to_pyarrow_table().to_pylist()
    return {row["user"]: row["n"] for row in found}


def there(sink: DeltaSink, files: list[StagedFile]) -> bool:
    return all(Path(sink.path, file.path).exists() for file in files)


def test_a_replacement_goes_on_with_the_runs_that_it_keeps_and_others_are_swept(sink: DeltaSink) -> None:
    commit(sink.open(OUTPUT), sink, 0, ada=1)
    kept, litter = stage(sink, 0, bob=2), stage(sink, 0, eve=3)
    table = sink.open(OUTPUT)
    anew: Any = table.replacement("e" * 32)
    assert anew.keep(kept)
    table.sweep(lambda: None)  # type: ignore[union-attr]
    assert there(sink, kept)
    assert not there(sink, litter)
    assert not anew.keep(litter)
    anew.commit(0, 2, SCHEMA, kept, write="b" * 32)
    assert rows(sink) == {"bob": 2}


def test_a_table_that_was_made_again_goes_on_in_the_same_run(sink: DeltaSink) -> None:
    table = sink.open(OUTPUT)
    for epoch in range(3):
        commit(table, sink, epoch, ada=epoch, bob=7)
    anew: Any = table.replacement("e" * 32)
    anew.commit(0, 3, SCHEMA, stage(sink, 2, ada=20, eve=30), write="b" * 32)
    assert rows(sink) == {"ada": 20, "eve": 30}
    for epoch in (3, 4):
        commit(anew, sink, epoch, ada=epoch * 10)
    assert rows(sink) == {"ada": 40, "eve": 30}
    assert (anew.upper, anew.volume().rows, sink.open(OUTPUT).upper) == (5, 2, 5)


def test_it_is_removed_with_its_runs_and_not_with_what_is_of_others(sink: DeltaSink) -> None:
    stage(sink, 0, ada=1)
    sink.check_removable(OUTPUT)  # nothing is committed yet
    commit(sink.open(OUTPUT), sink, 0, ada=1)
    stage(sink, 1, bob=1)
    foreign = Path(sink.path, "notes.txt")
    foreign.write_text("of somebody else")
    with pytest.raises(TableNotRemovable):
        sink.remove(OUTPUT)
    foreign.unlink()
    sink.remove(OUTPUT)
    assert not Path(sink.path).exists()


def test_it_takes_no_files_out_by_name(sink: DeltaSink) -> None:
    table = sink.open(OUTPUT)
    commit(table, sink, 0, ada=1)
    with pytest.raises(NothingTakenOut):
        table.commit(1, 1, SCHEMA, [], remove=table.files(), write="b" * 32)


def test_changes_with_other_columns_are_refused_before_anything_is_merged(sink: DeltaSink) -> None:
    table: Any = sink.open(OUTPUT)
    commit(table, sink, 0, ada=1)
    table.work_by(lambda tasks: pytest.fail("it merged"))
    other = pa.schema([*SCHEMA, ("city", pa.string())])
    stager = sink.stage(other, job=job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], task=0)
    stager.write(pa.RecordBatch.from_pylist([{"user": "ada", "n": 2, "_epoch": 1, "city": "Turin"}], other))
    with pytest.raises(TableSchemaChanged, match="city"):
        table.commit(1, 2, other, stager.close(), write="b" * 32)
    assert rows(sink) == {"ada": 1}


def test_a_run_that_is_damaged_is_not_merged(sink: DeltaSink) -> None:
    table = sink.open(OUTPUT)
    commit(table, sink, 0, ada=1)
    [run] = stage(sink, 1, ada=2)
    path = Path(sink.path, run.path)
    path.write_bytes(b"x" * run.bytes)
    with pytest.raises(StagedFileMissing, match="is damaged"):
        table.commit(1, 2, SCHEMA, [run], write="b" * 32)
    assert rows(sink) == {"ada": 1}
    assert sink.open(OUTPUT).upper == 1


def test_an_epoch_that_changes_nothing_is_a_version_without_files(sink: DeltaSink) -> None:
    table = sink.open(OUTPUT)
    commit(table, sink, 0, ada=1)
    before = table.files()
    table.commit(1, 4, SCHEMA, [], write="b" * 32)
    assert (table.upper, table.files(), table.files(as_of=2)) == (4, before, before)


@pytest.mark.parametrize("vectors", [False, True])
def test_a_restore_that_is_taken_back_leaves_nothing_open(sink: DeltaSink, vectors: bool) -> None:
    sink = replace(sink, deletion_vectors=vectors)
    with mock.patch.object(bykey, "SIZES", Sizes(few_rows=0, most_dead=1.0)):
        for epoch in range(4):
            commit(sink.open(OUTPUT), sink, epoch, ada=epoch, **{f"bob{epoch}": 7})
        for version in (1, 2):
            DeltaTable(sink.path).restore(version)
            with pytest.raises(TableChangedByOthers):
                sink.open(OUTPUT)
        DeltaTable(sink.path).restore(3)
        commit(sink.open(OUTPUT), sink, 4, ada=4)
    found = pa.table(QueryBuilder().register("t", DeltaTable(sink.path)).execute("SELECT user, n FROM t"))
    assert dict(zip(*found.to_pydict().values(), strict=True)) == {"ada": 4, **{f"bob{n}": 7 for n in range(4)}}
