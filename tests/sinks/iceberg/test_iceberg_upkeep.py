"""Tables of Iceberg that are kept in shape: fewer files, manifests and snapshots, and the same rows for everybody."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ServiceUnavailableError
from tests.depth import deep
from tests.sinks.iceberg import elsewhere
from tests.sinks.iceberg.conftest import NAME, OUTPUT, SCHEMA, IcebergBench, write_id
from tests.sinks.iceberg.test_lost_answers import answering

import tidegauge as tg
from tidegauge.errors.iceberg import CatalogAway, IcebergRowsDeleted, IcebergTableChanged
from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.objects.reading import readable
from tidegauge.sinks.location import at
from tidegauge.sinks.protocol import job_mark
from tidegauge.sinks.upkeep import Pack, Remnant, Upkeep

NOW = timedelta(0)


def job() -> str:
    return job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16]


def pack(table: Upkeep, one: Pack) -> str | None:
    return table.commit(one, table.stage(one, job=job()), write=write_id())


def kept(bench: IcebergBench, retention: timedelta | None = None) -> list[Remnant]:
    """Maintain a table, and return what was removed."""
    table = bench.sink.maintain(OUTPUT)
    while packs := table.plan():
        for one in packs:
            assert pack(table, one) is not None
    found: list[Remnant] = table.remnants(retention)
    table.clear(found)
    table.end()
    return found


def as_of(bench: IcebergBench, epoch: int) -> list[int]:
    table = bench.open()
    files = table.uris(table.files(as_of=epoch))
    read = [pq.read_table(readable(at(file)))["_epoch"].to_pylist() for file in files]
    return sorted(e for some in read for e in some if e <= epoch)


def manifests(bench: IcebergBench) -> int:
    table = bench.table
    return len(table.current_snapshot().manifests(table.io))


def on_disk(bench: IcebergBench) -> set[str]:
    """The files of data, manifests and lists of them."""
    return {path for path in bench.found() if path.endswith((".parquet", ".avro"))}


def test_small_files_become_one_and_every_epoch_is_read_as_before(bench: IcebergBench) -> None:
    table = bench.filled(9)
    before = {epoch: as_of(bench, epoch) for epoch in range(9)}
    assert kept(bench) == []
    assert len(bench.open().files()) == 1
    assert {epoch: as_of(bench, epoch) for epoch in range(9)} == before
    assert bench.table.current_snapshot().summary.operation.value == "replace"
    assert (table.upper, bench.open().upper, bench.open().volume().rows) == (9, 9, 9)
    bench.commit(table, 9, 10)
    assert bench.epochs() == list(range(10))
    assert [bench.open().version_of(epoch) for epoch in range(10)] == [
        str(one.snapshot_id) for one in bench.table.snapshots() if one.summary.operation.value == "append"
    ]


def test_old_snapshots_go_with_the_files_that_are_only_theirs(bench: IcebergBench) -> None:
    table = bench.filled(8)
    kept(bench, NOW)
    bench.commit(table, 8, 9)
    kept(bench, NOW)
    held = bench.table
    assert [str(one.snapshot_id) for one in held.snapshots()] == [str(held.metadata.current_snapshot_id)]
    named = {file.path for file in bench.open().files()}
    assert {path for path in on_disk(bench) if path.startswith("data/")} == named
    assert len(on_disk(bench)) <= len(named) + 4
    assert bench.epochs() == list(range(9)) == as_of(bench, 8)
    with pytest.raises(TableUpperMismatch):
        bench.commit(bench.open(), 8, 9)
    bench.commit(bench.open(), 9, 10)
    assert bench.epochs() == list(range(10))


@pytest.mark.long
def test_what_the_table_says_decides_what_stays(bench: IcebergBench) -> None:
    bench.filled(6)
    held = bench.table
    first = held.snapshots()[0].snapshot_id
    held.manage_snapshots().create_tag(first, "first").commit()
    held.transaction().set_properties({"history.expire.min-snapshots-to-keep": "3"}).commit_transaction()
    kept(bench, NOW)
    left = bench.table.snapshots()
    assert [one.snapshot_id for one in left] == [first, *(one.snapshot_id for one in left[1:])]
    assert len(left) == 4
    assert bench.table.scan(snapshot_id=first).to_arrow()["_epoch"].to_pylist() == [0]
    assert kept(bench) == []  # of none is it five days


@pytest.mark.long
def test_the_snapshot_that_a_table_is_believed_by_stays(bench: IcebergBench) -> None:
    table = bench.filled(3)
    first = bench.table.snapshots()[0].snapshot_id
    ours = bench.open().version_of(2)
    bench.table.delete("_epoch == 0")
    kept(bench, NOW)
    assert ours in {str(one.snapshot_id) for one in bench.table.snapshots()}
    bench.commit(table, 3, 4)
    assert bench.epochs() == [1, 2, 3]
    assert first not in {one.snapshot_id for one in bench.table.snapshots()}


def test_a_driver_that_commits_between_goes_on_and_so_does_the_pack(bench: IcebergBench) -> None:
    driver = bench.filled(8)
    table = bench.sink.maintain(OUTPUT)
    [one] = table.plan()
    files = table.stage(one, job=job())
    bench.commit(driver, 8, 9)
    real, turn = SqlCatalog.commit_table, [True]

    def commit(self: Any, *asked: Any) -> Any:
        if turn.pop() if turn else False:
            bench.commit(driver, 9, 10)  # while the pack is being committed
        return real(self, *asked)

    with mock.patch.object(SqlCatalog, "commit_table", commit):
        assert table.commit(one, files, write=write_id()) is not None
    bench.commit(driver, 10, 11)
    assert bench.epochs() == list(range(11))
    assert len(bench.open().files()) == 4


@pytest.mark.long
def test_of_two_that_pack_one_does_and_the_other_leaves_nothing(bench: IcebergBench) -> None:
    bench.filled(8)
    one, two = bench.sink.maintain(OUTPUT), bench.sink.maintain(OUTPUT)
    [first], [second] = one.plan(), two.plan()
    staged = two.stage(second, job=job())
    assert pack(one, first) is not None
    assert two.commit(second, staged, write=write_id()) is None
    two.discard(staged)
    assert not (bench.path / staged[0].path).exists()
    assert bench.epochs() == list(range(8))


@pytest.mark.parametrize("done", [True, False])
def test_an_error_of_a_pack_is_a_question(bench: IcebergBench, done: bool) -> None:
    bench.filled(8)
    table = bench.sink.maintain(OUTPUT)
    [one] = table.plan()
    files = table.stage(one, job=job())
    with answering(ServiceUnavailableError("503"), done=done):
        if done:
            assert table.commit(one, files, write=write_id()) is not None
        else:
            with pytest.raises(CatalogAway):
                table.commit(one, files, write=write_id())
    table.discard(files)  # whatever one believes of them
    assert bench.epochs() == list(range(8))
    assert len(bench.open().files()) == (1 if done else 8)


@pytest.mark.parametrize(
    "error", [ServiceUnavailableError("503"), pytest.param(CommitFailedException("409"), marks=pytest.mark.long)]
)
def test_a_drivers_answer_is_lost_and_a_pack_comes_before_it_looks(bench: IcebergBench, error: Exception) -> None:
    driver = bench.filled(8)
    with answering(error, done=True, beside=lambda: print(kept(bench))):
        bench.commit(driver, 8, 9)
    assert driver.upper == 9
    assert bench.epochs() == list(range(9))


@pytest.mark.parametrize("done", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_error_of_an_expiry_is_a_question(bench: IcebergBench, done: bool) -> None:
    bench.filled(4)
    table = bench.sink.maintain(OUTPUT)
    found = table.remnants(NOW)
    with answering(ServiceUnavailableError("503"), done=done):
        if done:
            table.clear(found)
        else:
            with pytest.raises(CatalogAway):
                table.clear(found)
    assert len(bench.table.snapshots()) == (1 if done else 4)
    assert bench.epochs() == list(range(4))
    table.clear(table.remnants(NOW))
    assert len(bench.table.snapshots()) == 1
    assert bench.epochs() == list(range(4))


@pytest.mark.long
def test_what_others_have_deleted_is_not_put_back(bench: IcebergBench) -> None:
    bench.filled(8)
    table = bench.sink.maintain(OUTPUT)
    [one] = table.plan()
    files = table.stage(one, job=job())
    bench.table.delete("_epoch == 3")
    assert table.commit(one, files, write=write_id()) is None
    kept(bench)
    assert bench.epochs() == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.long
def test_rows_of_others_are_left_alone(bench: IcebergBench) -> None:
    bench.filled(8)
    table = bench.sink.maintain(OUTPUT)
    [one] = table.plan()
    files = table.stage(one, job=job())
    bench.table.append(bench.table.scan().to_arrow().slice(0, 1))
    with pytest.raises(IcebergTableChanged):
        table.commit(one, files, write=write_id())
    with pytest.raises(IcebergTableChanged):
        table.remnants(NOW)


@pytest.mark.long
def test_what_a_maintenance_that_died_has_left_is_found_a_day_later(bench: IcebergBench) -> None:
    bench.filled(8)
    table = bench.sink.maintain(OUTPUT)
    [one] = table.plan()
    [staged] = table.stage(one, job=job())  # and it dies; another one expires snapshots, and dies too
    with (
        mock.patch("tidegauge.sinks.iceberg.packing.removed", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        kept(bench, NOW)
    assert bench.sink.maintain(OUTPUT).remnants(NOW) == []  # of today
    old = time.time() - 2 * 86_400
    for path in bench.path.rglob("*"):
        os.utime(path, (old, old))
    foreign = bench.path / "metadata" / f"{uuid.uuid4()}-m0.avro"
    foreign.write_bytes(b"another's")
    os.utime(foreign, (old, old))
    found = bench.sink.maintain(OUTPUT).remnants(NOW)
    assert all(one.staged for one in found)
    assert staged.path in {one.path for one in found}
    assert len(found) == 8  # the staged one, and the lists of seven snapshots
    bench.sink.maintain(OUTPUT).clear(found)
    assert bench.epochs() == list(range(8))
    assert foreign.exists()
    assert not on_disk(bench) & {one.path for one in found}


@pytest.mark.long
def test_packs_stay_within_partitions_and_are_sorted(tmp_path: Path) -> None:
    bench = IcebergBench(tmp_path, options={"partition_by": "user", "sort_by": "amount"})
    table = bench.open()
    for epoch in range(8):
        rows = [{"user": user, "amount": float(-epoch), "_epoch": epoch} for user in "ab"]
        table.commit(epoch, epoch + 1, SCHEMA, bench.stage(rows), write=write_id())
    kept(bench)
    files = bench.open().files()
    assert len(files) == 2
    for path in bench.open().uris(files):
        rows = pq.read_table(path).to_pylist()
        assert len({row["user"] for row in rows}) == 1
        assert [row["amount"] for row in rows] == sorted(row["amount"] for row in rows)
    assert len(list(bench.table.scan(row_filter="user = 'a'").plan_files())) == 1
    bench.commit(bench.open(), 8, 9)
    assert len(bench.rows()) == 17


STEPS = st.sampled_from(["commit", "commit", "commit", "two", "pack", "clear", "theirs", "replace"])


@pytest.mark.long
@deep(15)
@given(st.lists(STEPS, max_size=14))
def test_whatever_is_done_in_whatever_order_the_rows_are_those_of_the_epochs(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[str]
) -> None:
    bench = IcebergBench(tmp_path_factory.mktemp("lake"))
    table, upper = bench.open(), 0
    for step in steps:
        if step in ("commit", "two"):
            count = 1 if step == "commit" else 2
            bench.commit(table, upper, upper + count)
            upper += count
        elif upper and step == "pack":
            kept(bench)
        elif upper and step == "clear":
            kept(bench, NOW)
        elif upper and step == "theirs":
            bench.table.maintenance.expire_snapshots().by_ids(
                [one.snapshot_id for one in bench.table.snapshots()[:-1]]
            ).commit()
        elif upper:
            table = bench.open()
            new = table.replacement(uuid.uuid4().hex)
            rows = [{"user": "eve", "amount": 1.0, "_epoch": epoch} for epoch in range(upper)]
            new.commit(0, upper, SCHEMA, bench.stage(rows), write=write_id())
            table = bench.open()
        assert bench.epochs() == list(range(upper))
        if upper:
            assert as_of(bench, upper - 1) == list(range(upper))


@pytest.mark.long
def test_a_flow_is_maintained_by_command_and_while_it_runs(tmp_path: Path) -> None:
    landing = tmp_path / "landing.jsonl"
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    rows = flow.source("orders", tg.FileSource(str(landing), format=tg.Json("id long, user string")))
    flow.sink("orders", rows, tg.IcebergSink(NAME, warehouse=str(tmp_path / "lake")))
    for number in range(8):
        with landing.open("a") as file:
            file.write(f'{{"id": {number}, "user": "ada"}}\n')
        flow.run("caught-up", engine="local", maintain=600 if number == 7 else None)
    planned = tg.maintain(flow, dry_run=True).outputs[0]
    done = tg.maintain(flow, ["orders"], retention=NOW).outputs[0]
    assert (planned.error, done.error) == (None, None)
    assert done.files[1] < 4
    assert done.removed
    assert tg.read_arrow(flow, "orders", as_of=3).sort_by("id")["id"].to_pylist() == [0, 1, 2, 3]
    assert tg.maintain(flow).outputs[0].packed == 0


@pytest.mark.long
def test_a_thousand_epochs_are_a_few_files_and_manifests(bench: IcebergBench) -> None:
    table = bench.open()
    for epoch in range(1000):
        rows = [{"user": user, "amount": 1.0, "_epoch": epoch} for user in "abc"]
        table.commit(epoch, epoch + 1, SCHEMA, bench.stage(rows), write=write_id())
        if epoch % 250 == 249:
            kept(bench, timedelta(seconds=2))
    kept(bench)
    assert len(bench.open().files()) < 10
    assert manifests(bench) < 10
    bench.commit(table, 1000, 1001)  # what its last commit shows stays
    kept(bench, NOW)
    assert len(on_disk(bench)) < 40
    assert bench.open().volume().rows == 3001
    assert as_of(bench, 499) == [epoch for epoch in range(500) for _ in "abc"]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_procedures_of_spark_and_ours_pass_each_other(tmp_path: Path) -> None:
    bench = IcebergBench(tmp_path)
    bench.warehouse.mkdir()
    driver = bench.filled(8)
    with elsewhere.spark(bench.warehouse) as spark:

        def call(procedure: str, more: str = "") -> None:
            spark.sql(f"CALL default.system.{procedure}(table => '{NAME}'{more})")

        table = bench.sink.maintain(OUTPUT)
        [one] = table.plan()
        files = table.stage(one, job=job())
        call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
        assert table.commit(one, files, write=write_id()) is None
        table.discard(files)
        for epoch in range(8, 16):
            bench.commit(driver, epoch, epoch + 1)
        kept(bench)
        call("rewrite_manifests")
        call("expire_snapshots", ", older_than => TIMESTAMP '2999-01-01', retain_last => 1")
        assert spark.sql(f"SELECT count(*), max(_epoch) FROM default.{NAME}") == [[16, 15]]
        for epoch in range(16, 24):
            bench.commit(driver, epoch, epoch + 1)
        kept(bench, NOW)
        assert spark.sql(f"SELECT count(*) FROM default.{NAME}.snapshots")[0][0] <= 3
        assert spark.sql(f"SELECT count(*), max(_epoch) FROM default.{NAME}") == [[24, 23]]
        call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
        call("expire_snapshots", ", older_than => TIMESTAMP '2999-01-01', retain_last => 1")
        kept(bench, NOW)
        old = time.time() - 10 * 86_400
        for path in bench.path.rglob("*"):
            os.utime(path, (old, old))
        call("remove_orphan_files")
        bench.commit(driver, 24, 25)
        assert spark.sql(f"SELECT count(*), max(_epoch) FROM default.{NAME}") == [[25, 24]]
        spark.sql(f"ALTER TABLE default.{NAME} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        spark.sql(f"DELETE FROM default.{NAME} WHERE _epoch = 6")
        with pytest.raises(IcebergRowsDeleted):
            bench.sink.maintain(OUTPUT).plan()
        bench.commit(driver, 25, 26)
    assert bench.epochs() == [epoch for epoch in range(26) if epoch != 6]
