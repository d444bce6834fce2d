"""Upkeep of a Delta table beside its driver and beside others: other files, the same rows, at every epoch."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.sinks.altering import alter, delete_first_row

from tidegauge.errors.sinks import TableChangedByOthers
from tidegauge.errors.upkeep import CannotPack
from tidegauge.remap.history import History
from tidegauge.sinks import DeltaSink, OutputId, StagedFile
from tidegauge.sinks.keyed.planning import Sizes
from tidegauge.sinks.layout import packing
from tidegauge.sinks.protocol import Volume, job_mark
from tidegauge.sinks.upkeep import Pack, Upkeep
from tidegauge.sinks.working import alone

OUTPUT = OutputId("shop", "orders", "a" * 32)
SCHEMA = pa.schema(
    [("n", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("_epoch", pa.int64())]
)


def job() -> str:
    return job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16]


@dataclass
class Bench:
    """A table that is appended to, and the rows that it should have: their numbers, each with its epoch."""

    folder: str
    rows: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sink = DeltaSink(f"{self.folder}/t")
        self.table: Any = self.sink.open(OUTPUT)

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.sink.path)

    def stage(self, rows: list[tuple[int, int]]) -> list[StagedFile]:
        stager = self.sink.stage(SCHEMA, job=job(), task=0)
        said = [{"n": n, "user": f"u{n}", "at": n, "_epoch": epoch} for n, epoch in rows]
        stager.write(pa.RecordBatch.from_pylist(said, schema=SCHEMA))
        return stager.close()

    def commit(self, tasks: list[int], *, epochs: int = 1) -> None:
        """Append epochs, each with as many rows in as many files as `tasks` says."""
        lower, files = self.table.upper, list[StagedFile]()
        for epoch in range(lower, lower + epochs):
            for count in tasks:
                rows = [(len(self.rows) + at, epoch) for at in range(count)]
                files += self.stage(rows) if rows else []
                self.rows += rows
        self.table.commit(lower, lower + epochs, SCHEMA, files, write=job(), history=History())

    def upkeep(self) -> Upkeep:
        return self.sink.maintain(OUTPUT)

    def pack(self, *, between: Callable[[], object] = lambda: None) -> list[str | None]:
        """Pack what is worth it; return the versions. between: what others do before each commit."""
        table, versions = self.upkeep(), list[str | None]()
        for pack in table.plan():
            staged = table.stage(pack, job=job())
            between()
            versions.append(table.commit(pack, staged, write=job()))
            if versions[-1] is None:
                table.discard(staged)
        table.end()
        return versions

    def shown(self, *, as_of: int) -> list[tuple[int, int]]:
        """Return the rows as of an epoch, in the order of the table's files."""
        uris = self.table.uris(self.table.files(as_of=as_of))
        rows = [row for uri in uris for row in pq.read_table(uri, schema=SCHEMA, partitioning=None).to_pylist()]
        assert all(row["user"] == f"u{row['n']}" and row["at"].microsecond == row["n"] for row in rows)
        return [(row["n"], row["_epoch"]) for row in rows if row["_epoch"] <= as_of]

    def check(self, *, ordered: bool = True) -> None:
        """See that the rows are those as of each epoch. ordered: whether those of earlier ones come first."""
        for epoch in range(self.table.upper):
            found = self.shown(as_of=epoch)
            assert sorted(found) == [row for row in self.rows if row[1] <= epoch]
            assert not ordered or [row[1] for row in found] == sorted(row[1] for row in found)
        anew = self.sink.open(OUTPUT)
        assert anew.upper == self.table.upper
        assert self.table.volume() == anew.volume() == Volume.of(anew.files())

    def litter(self) -> set[str]:
        named = {path for v in range(self.delta.version() + 1) for path in DeltaTable(self.sink.path, v).file_uris()}
        there = {name for name in os.listdir(self.sink.path) if name.startswith("part-")}
        return there - {Path(path).name for path in named}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(str(tmp_path))
    for _ in range(9):
        made.commit([3])
    return made


ACTS: dict[str, Callable[[Bench], object]] = {
    "commit": lambda bench: bench.commit([2]),
    "tasks": lambda bench: bench.commit([1, 4, 1]),
    "span": lambda bench: bench.commit([1, 2], epochs=3),
    "empty": lambda bench: bench.commit([]),
    "pack": lambda bench: bench.pack(),
    "pack beside": lambda bench: bench.pack(between=lambda: bench.commit([1])),
    "optimize": lambda bench: bench.delta.optimize.compact(),
    "vacuum": lambda bench: bench.delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "clear": lambda bench: bench.upkeep().clear(bench.upkeep().remnants(timedelta(0))),
    "checkpoint": lambda bench: bench.delta.create_checkpoint(),
    "reopen": lambda bench: setattr(bench, "table", bench.sink.open(OUTPUT)),
}


@deep(24)
@given(acts=st.lists(st.sampled_from([*ACTS, "commit", "pack"]), min_size=4, max_size=16))
def test_a_table_that_is_packed_has_the_same_rows_at_every_epoch(acts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        bench.commit([3])
        for act in acts:
            ACTS[act](bench)
        bench.check(ordered="optimize" not in acts)  # which puts files together as it meets them
        assert bench.litter() == set()


def test_readers_of_others_see_the_same_rows_and_what_files_say_of_epochs_stays_narrow(bench: Bench) -> None:
    bench.pack()
    for _ in range(3):
        bench.commit([3])
    assert len(bench.table.files()) == 4
    assert [(file.first_epoch, file.last_epoch) for file in bench.table.files()] == [
        (0, 8),
        (9, 9),
        (10, 10),
        (11, 11),
    ]
    for epoch in (0, 4, 8, 9, 11):
        wanted = [n for n, at in bench.rows if at <= epoch]
        told = [
            bench.delta.to_pyarrow_table(filters=[("_epoch", "<=", epoch)])["n"].to_pylist(),
            pl.scan_delta(bench.sink.path).filter(pl.col("_epoch") <= epoch).collect()["n"].to_list(),
            [row[0] for row in _duck(bench.delta.to_pyarrow_dataset(), epoch)],
        ]
        assert [sorted(one) for one in told] == [wanted] * 3
    old = DeltaTable(bench.sink.path, version=8).to_pyarrow_table()
    assert sorted(old["n"].to_pylist()) == [n for n, at in bench.rows if at <= 8]


def _duck(dataset: Any, epoch: int) -> list[tuple[int]]:
    found = duckdb.sql(f"select n from dataset where _epoch <= {epoch}")
    assert found is not None
    return found.fetchall()


def test_readers_that_follow_the_rows_of_a_table_pass_over_a_pack(bench: Bench) -> None:
    [version] = bench.pack()
    text = Path(bench.sink.path, "_delta_log", f"{int(version or 0):020d}.json").read_text()
    assert '"dataChange":true' not in text
    assert text.count('"dataChange":false') == 10
    assert DeltaTable(bench.sink.path).history(1)[0]["operation"] == "OPTIMIZE"


def test_a_driver_that_has_the_table_open_goes_on_and_knows_which_version_brought_what(bench: Bench) -> None:
    driver = bench.sink.open(OUTPUT)
    assert bench.pack() == ["9"]
    driver.commit(9, 10, SCHEMA, bench.stage([(27, 9)]), write=job())
    bench.rows.append((27, 9))
    assert [driver.version_of(epoch) for epoch in (0, 8, 9)] == ["0", "8", "10"]
    bench.table = driver
    bench.check()


def test_epochs_that_a_driver_commits_after_the_table_was_opened_are_packed_too(bench: Bench) -> None:
    table = bench.upkeep()
    for _ in range(3):
        bench.commit([3])
    [pack] = table.plan()
    assert pack.rows == 36
    staged = table.stage(pack, job=job())
    bench.commit([1])
    assert table.commit(pack, staged, write=job()) == "13"
    bench.check()


def _replace(bench: Bench) -> None:
    bench.table.replacement("e" * 32).commit(0, 9, SCHEMA, bench.stage([(0, 8)]), write=job())


INTERFERING: dict[str, Callable[[Bench], object]] = {
    "optimize": lambda bench: bench.delta.optimize.compact(),
    "delete": lambda bench: bench.delta.delete("n = 1"),
    "maintenance": lambda bench: bench.pack(),
    "replacement": _replace,
}


@pytest.mark.parametrize("what", INTERFERING)
def test_a_pack_is_given_up_where_others_have_taken_its_files_meanwhile(bench: Bench, what: str) -> None:
    seen: list[int] = []

    def interfere() -> None:
        INTERFERING[what](bench)
        seen.append(bench.delta.version())

    assert bench.pack(between=interfere) == [None]
    assert bench.delta.version() == seen[0]
    assert bench.litter() == set()


def test_rows_of_another_writer_are_not_packed_with_ours(bench: Bench) -> None:
    foreign = pa.table({"n": [9], "user": ["eve"], "at": [None], "_epoch": [0]}, schema=SCHEMA)
    with pytest.raises(TableChangedByOthers):
        bench.pack(between=lambda: write_deltalake(bench.sink.path, foreign, mode="append"))
    with pytest.raises(TableChangedByOthers):
        bench.upkeep()


def test_a_file_that_is_damaged_or_gone_is_said_and_nothing_is_changed(bench: Bench) -> None:
    table = bench.upkeep()
    [pack] = table.plan()
    path = Path(bench.sink.path, pack.files[4].path)
    whole = path.read_bytes()
    for spoil in (lambda: path.write_bytes(whole[:-9]), path.unlink):
        spoil()
        with pytest.raises(CannotPack, match=pack.files[4].path):
            table.stage(pack, job=job())
    path.write_bytes(whole)
    assert bench.delta.version() == 8
    assert bench.litter() == set()


@pytest.mark.long
def test_a_pack_of_many_rows_is_written_in_pieces_of_bounded_memory(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path))
    rows = 50_000
    for epoch in range(4):
        columns = [
            range(rows),
            [f"{n:09d}" for n in range(rows)],
            pa.nulls(rows, SCHEMA.field(2).type),
            [epoch] * rows,
        ]
        stager = bench.sink.stage(SCHEMA, job=job(), task=0)
        stager.write(pa.record_batch([pa.array(one) for one in columns], schema=SCHEMA))
        bench.table.commit(epoch, epoch + 1, SCHEMA, stager.close(), write=job())
    assert bench.pack() == ["4"]
    [file] = bench.table.files()
    found = pq.ParquetFile(f"{bench.sink.path}/{file.path}").metadata
    assert (found.num_rows, found.num_row_groups) == (4 * rows, 2)


def test_rows_that_are_marked_deleted_are_not_packed(bench: Bench) -> None:
    first, *others = bench.table.files()
    alter(bench.sink.path, {"delta.enableDeletionVectors": "true"}, ["deletionVectors"])
    delete_first_row(bench.sink.path, first)
    assert bench.pack()
    [packed] = bench.table.files()
    assert (packed.rows, packed.deletions) == (first.rows - 1 + sum(file.rows for file in others), "")


def test_a_file_much_of_which_is_deleted_is_packed_by_itself(bench: Bench) -> None:
    bench.pack()
    [file] = bench.table.files()
    alter(bench.sink.path, {"delta.enableDeletionVectors": "true"}, ["deletionVectors"])
    delete_first_row(bench.sink.path, file)
    with mock.patch.object(packing, "_DEAD", 0.0):
        assert bench.pack()
    [packed] = bench.table.files()
    assert (packed.rows, packed.deletions) == (file.rows - 1, "")


def test_append_only_tables_are_packed_as_optimize_may(bench: Bench) -> None:
    bench.delta.alter.set_table_properties({"delta.appendOnly": "true"})
    assert bench.pack() == ["10"]
    bench.commit([1])
    bench.check()


# -- what nothing names


def old(path: Path, *, days: float) -> None:
    then = path.stat().st_mtime - days * 86_400
    os.utime(path, (then, then))


def test_only_files_past_the_retention_go_and_staged_ones_are_told_apart(bench: Bench) -> None:
    bench.pack()
    litter = Path(bench.sink.path, f"part-{job()}-00000-000.parquet")
    foreign = Path(bench.sink.path, "part-of-another-program.parquet")
    notes = Path(bench.sink.path, "README")
    hidden = Path(bench.sink.path, "_staged", job(), "part-0.parquet")
    hidden.parent.mkdir(parents=True)
    for path in (litter, foreign, notes, hidden):
        path.write_bytes(b"rows")
        old(path, days=8)
    fresh = Path(bench.sink.path, f"part-{job()}-00000-000.parquet")
    fresh.write_bytes(b"rows")
    table = bench.upkeep()
    assert [(one.path, one.staged) for one in table.remnants(None)] == [(litter.name, True)]
    found = table.remnants(timedelta(0))
    assert {one.path for one in found if one.staged} == {litter.name}
    assert len([one for one in found if not one.staged]) == 9
    table.clear(found)
    assert foreign.exists() and notes.exists() and hidden.exists() and fresh.exists()  # noqa: PT018
    assert table.remnants(timedelta(0)) == []
    bench.check()


def test_the_property_of_the_table_says_how_long_files_stay(bench: Bench) -> None:
    bench.delta.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    bench.pack()
    assert len(bench.upkeep().remnants(None)) == 9
    assert bench.upkeep().remnants(timedelta(days=1)) == []


def test_files_that_a_checkpoint_no_longer_tells_of_are_known_from_older_entries(bench: Bench) -> None:
    bench.delta.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    bench.pack()
    bench.commit([1])
    bench.delta.create_checkpoint()
    assert [one.staged for one in bench.upkeep().remnants(None)] == [False] * 9


def test_a_file_that_was_restored_before_it_is_removed_stays(bench: Bench) -> None:
    bench.pack()
    table = bench.upkeep()
    found = table.remnants(timedelta(0))
    bench.delta.restore(8)
    table.clear(found)
    assert DeltaTable(bench.sink.path).to_pyarrow_table().num_rows == 27


# -- tables by key


@dataclass
class ByKey:
    """A table by key with small leaves."""

    folder: str

    def __post_init__(self) -> None:
        self.sink = DeltaSink(f"{self.folder}/t", envelope="upsert", key="n", deleted="gone")
        self.table: Any = self.sink.open(OUTPUT)

    def commit(self, numbers: range, *, gone: bool = False) -> None:
        schema = pa.schema([("n", pa.int64()), ("value", pa.int64()), ("gone", pa.bool_()), ("_epoch", pa.int64())])
        stager, epoch = self.sink.stage(schema, job=job(), task=0), self.table.upper
        rows = [{"n": n, "value": epoch, "gone": gone, "_epoch": epoch} for n in numbers]
        stager.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        self.table.commit(epoch, epoch + 1, schema, stager.close(), write=job())

    def shown(self, *, as_of: int) -> dict[int, int]:
        uris = self.table.uris(self.table.files(as_of=as_of))
        rows = [row for uri in uris for row in pq.read_table(uri, partitioning=None).to_pylist()]
        found = [(row["n"], row["value"]) for row in rows if row["_epoch"] <= as_of]
        assert len(dict(found)) == len(found)
        return dict(found)


@pytest.fixture
def by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ByKey:
    monkeypatch.setattr("tidegauge.sinks.delta.bykey.SIZES", Sizes(leaf_rows=10))
    return ByKey(str(tmp_path))


def test_small_leaves_of_a_table_by_key_become_one_and_its_earlier_states_stay(by_key: ByKey) -> None:
    by_key.commit(range(100))
    assert len(by_key.table.files()) == 10
    for start in range(0, 100, 10):
        by_key.commit(range(start, start + 8), gone=True)
    states = [by_key.shown(as_of=epoch) for epoch in range(11)]
    table = by_key.sink.maintain(OUTPUT)
    [pack] = table.plan()
    assert table.commit(pack, table.stage(pack, job=job()), write=job()) == "11"
    assert table.plan() == []
    assert len(by_key.table.files()) == 1
    assert [by_key.shown(as_of=epoch) for epoch in range(11)] == states
    by_key.commit(range(5))
    assert by_key.shown(as_of=11) == {**states[-1], **dict.fromkeys(range(5), 11)}
    assert by_key.shown(as_of=10) == states[-1]


def test_changes_that_a_driver_merges_between_are_not_undone_by_a_pack(by_key: ByKey) -> None:
    by_key.commit(range(100))
    table = by_key.sink.maintain(OUTPUT)
    [pack] = table.plan()
    staged = table.stage(pack, job=job())
    by_key.commit(range(33, 35))
    assert table.commit(pack, staged, write=job()) is None
    table.discard(staged)
    [pack] = table.plan()
    assert table.commit(pack, table.stage(pack, job=job()), write=job()) == "2"
    by_key.commit(range(34, 36))
    assert by_key.shown(as_of=2) == {n: {33: 1, 34: 2, 35: 2}.get(n, 0) for n in range(100)}


def test_a_driver_that_has_planned_a_merge_before_a_pack_plans_it_again(by_key: ByKey) -> None:
    by_key.commit(range(100))
    packed: list[str | None] = []

    def between(tasks: Sequence[Any]) -> list[list[StagedFile]]:
        if not packed:
            table = by_key.sink.maintain(OUTPUT)
            [pack] = table.plan()
            packed.append(table.commit(pack, table.stage(pack, job=job()), write=job()))
        return alone(tasks)

    by_key.table.work_by(between)
    by_key.commit(range(2))
    assert packed == ["1"]
    assert by_key.shown(as_of=1) == {n: int(n < 2) for n in range(100)}


def test_files_that_spark_has_rewritten_keep_their_instants(bench: Bench) -> None:
    """Spark stores instants without a zone, as a type that Parquet has given up, and columns in any order."""
    rows = bench.delta.to_pyarrow_table()
    path = Path(bench.sink.path, "part-00000-of-spark.parquet")
    pq.write_table(rows.select(["_epoch", "at", "user", "n"]), path, use_deprecated_int96_timestamps=True)
    file = StagedFile(path.name, rows.num_rows, path.stat().st_size, 0, 8)
    [staged] = bench.upkeep().stage(Pack((file,)), job=job())
    found = pq.read_table(f"{bench.sink.path}/{staged.path}", partitioning=None)
    assert found.schema.equals(SCHEMA)
    assert found.sort_by("n").equals(rows.cast(SCHEMA).sort_by("n"))
