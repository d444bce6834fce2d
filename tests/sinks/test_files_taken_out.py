"""A commit may take files out: what it replaces goes with what it puts in, or nothing changes, for every reader."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.forked import end_of
from tests.sinks import dying
from tests.sinks.conftest import SCHEMA, write_id
from tests.sinks.spark_delta import delta_spark

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import (
    BrokenChain,
    EpochReplaced,
    FileNotHeld,
    FilesChangedByOthers,
    MisplacedRows,
    RowsTakenOut,
    TableUpperMismatch,
    UnsupportedTable,
)
from tidegauge.sinks import StagedFile
from tidegauge.sinks.protocol import Volume


@pytest.fixture
def three(bench: Any) -> Any:
    """A table of three commits, of an epoch each."""
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    return bench


def held(bench: Any, *, as_of: int | None = None) -> list[tuple[str, int]]:
    """Return `(user, epoch)` of every row in the files that the table itself names, sorted."""
    table = bench.open()
    uris = table.uris(table.files(as_of=as_of))
    rows = [row for uri in uris for row in pq.read_table(uri, schema=SCHEMA, partitioning=None).to_pylist()]
    last = table.upper - 1 if as_of is None else as_of
    return sorted((row["user"], row["_epoch"]) for row in rows if row["_epoch"] <= last)


def replace(table: Any, bench: Any, remove: list[StagedFile], user: str = "ada") -> list[StagedFile]:
    """Put the rows of files into one file, as compaction does, and return what was staged."""
    staged: list[StagedFile] = bench.stage(
        sorted(e for f in remove for e in range(f.first_epoch, f.last_epoch + 1)), user
    )
    table.commit(table.upper, table.upper, SCHEMA, staged, remove=remove, write=write_id())
    return staged


def test_files_are_replaced_in_one_commit_that_moves_no_upper_and_the_table_goes_on(three: Any) -> None:
    table, whole = three.open(), [("ada", epoch) for epoch in range(3)]
    replace(table, three, table.files()[:2])
    for opened in (table, three.open()):
        assert opened.upper == 3
        assert [
            (f.first_epoch, f.last_epoch, f.rows) for f in sorted(opened.files(), key=lambda f: f.first_epoch)
        ] == [
            (0, 1, 2),
            (2, 2, 1),
        ]
        assert opened.volume() == Volume.of(opened.files())
    assert three.rows() == held(three) == whole
    assert [held(three, as_of=epoch) for epoch in range(3)] == [whole[:1], whole[:2], whole]
    replace(table, three, table.files())
    three.commit(table, 3, 4)
    assert three.rows() == held(three) == [*whole, ("ada", 3)]
    assert three.open().volume() == Volume.of(table.files())


def test_epochs_are_still_of_the_commits_that_brought_them(three: Any) -> None:
    table = three.open()
    before = [table.version_of(epoch) for epoch in range(3)]
    replace(table, three, table.files())
    three.commit(table, 3, 4)
    for opened in (table, three.open()):
        assert [opened.version_of(epoch) for epoch in range(3)] == before
        assert opened.version_of(3) not in {None, *before}


def test_rows_are_taken_out_with_the_epochs_that_do_it_and_earlier_epochs_stay_readable(three: Any) -> None:
    table, whole = three.open(), [("ada", epoch) for epoch in range(3)]
    table.commit(3, 4, SCHEMA, three.stage([1, 3], "bob"), remove=[table.files()[1]], write=write_id())
    now = sorted([("ada", 0), ("ada", 2), ("bob", 1), ("bob", 3)])
    assert three.rows() == held(three) == held(three, as_of=3) == now
    three.commit(table, 4, 5)
    replace(table, three, [file for file in table.files() if file.first_epoch in (0, 2) and file.rows == 1][:1])
    assert [held(three, as_of=epoch) for epoch in range(3)] == [whole[:1], whole[:2], whole]
    assert held(three, as_of=3) == now
    assert three.open().upper == 5


def test_an_epoch_within_a_commit_that_took_rows_out_cannot_be_read_alone(three: Any) -> None:
    table = three.open()
    table.commit(3, 6, SCHEMA, three.stage([3, 5], "bob"), remove=table.files()[:1], write=write_id())
    for opened in (table, three.open()):
        with pytest.raises(EpochReplaced, match="epoch 4"):
            opened.files(as_of=4)
    assert held(three, as_of=2) == [("ada", epoch) for epoch in range(3)]
    assert held(three, as_of=5) == [("ada", 1), ("ada", 2), ("bob", 3), ("bob", 5)]


def test_a_file_that_is_not_held_any_more_is_not_taken_out_and_nothing_changes(three: Any) -> None:
    early, table = three.open(), three.open()
    old, before = table.files(), three.open().version_of(2)
    replace(table, three, old[:2])
    for remove in (old, old[:1], [StagedFile("part-0.parquet", 1, 1, 0, 0)]):
        for opened in (early, three.open()):
            staged = three.stage([3], "late")
            with pytest.raises(FileNotHeld):
                opened.commit(3, 4, SCHEMA, staged, remove=remove, write=write_id())
    with pytest.raises(FileNotHeld):
        replace(early, three, [old[0]])
    assert (three.open().upper, three.open().version_of(2)) == (3, before)
    assert three.rows() == [("ada", epoch) for epoch in range(3)]


def test_of_two_drivers_that_replace_the_same_files_one_wins(three: Any) -> None:
    first, second = three.open(), three.open()
    old = second.files()
    replace(first, three, old)
    with pytest.raises(FileNotHeld):
        replace(second, three, old)
    three.commit(second, 3, 4)
    with pytest.raises(TableUpperMismatch):
        first.commit(3, 3, SCHEMA, three.stage([0, 1, 2, 2]), remove=first.files(), write=write_id())
    assert three.rows() == held(three) == [("ada", epoch) for epoch in range(4)]


def test_a_replacement_whose_answer_was_lost_is_made_once(three: Any) -> None:
    table = three.open()
    old, staged = table.files(), three.stage([0, 1, 2])
    for opened in (table, three.open(), table):
        opened.commit(3, 3, SCHEMA, staged, remove=old, write="1" * 32)
    assert three.rows() == held(three) == [("ada", epoch) for epoch in range(3)]
    assert len(table.files()) == 1


def test_a_commit_that_moves_no_upper_takes_out_files_and_puts_as_many_rows_in(three: Any) -> None:
    table = three.open()
    old = table.files()
    for files, remove in [(three.stage([0]), []), (three.stage([0, 1]), old[:1]), ([], old[:1])]:
        with pytest.raises(InvalidArgument):
            table.commit(3, 3, SCHEMA, files, remove=remove, write=write_id())
    with pytest.raises(InvalidArgument, match="each file once"):
        table.commit(3, 3, SCHEMA, three.stage([0, 0]), remove=[old[0], old[0]], write=write_id())
    with pytest.raises(MisplacedRows):
        table.commit(3, 4, SCHEMA, three.stage([0]), remove=old[1:2], write=write_id())
    with pytest.raises(InvalidArgument, match="partition"):
        table.commit(3, 4, SCHEMA, [StagedFile("a", 1, 1, 3, 3, partition=(("day", "1"),))], write=write_id())
    assert three.rows() == [("ada", epoch) for epoch in range(3)]


def test_a_staged_file_says_its_partition_wherever_it_goes() -> None:
    file = StagedFile("a", 1, 1, 3, 3, "{}", (("day", "2026-11-23"), ("shop", None)))
    assert StagedFile.decode(file.encode()) == file


@pytest.mark.parametrize("instant", ["before commit", "after commit"])
def test_killed_while_files_are_replaced_the_rows_are_there_once(bench: Any, instant: str) -> None:
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    assert end_of(dying.replace, bench.kind.name, bench.path, instant) == -signal.SIGKILL
    whole = [("ada", epoch) for epoch in range(3)]
    assert held(bench) == whole
    table = bench.open()
    assert len(table.files()) == (1 if instant == "after commit" else 3)
    if bench.kind.name == "parquet":  # the next run moves what is left in sight
        table.sweep(lambda: None)
    assert bench.rows() == held(bench) == whole
    bench.commit(table, 3, 4)
    assert bench.rows() == [*whole, ("ada", 3)]


# -- Delta, and those who write to its tables too


@pytest.fixture
def delta(tmp_path: Path, kinds: Callable[[str, str], Any]) -> Any:
    bench = kinds("delta", str(tmp_path / "t"))
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    return bench


def test_the_entry_says_whether_rows_change_and_what_was_removed(delta: Any) -> None:
    import json

    table = delta.open()
    old = table.files()
    replace(table, delta, old[:2])
    table.commit(3, 4, SCHEMA, delta.stage([2, 3], "bob"), remove=[old[2]], write=write_id())
    for version, changes, gone in ((3, False, old[:2]), (4, True, old[2:])):
        lines = Path(delta.path, "_delta_log", f"{version:020d}.json").read_text().splitlines()
        actions = [json.loads(line) for line in lines]
        removed = [action["remove"] for action in actions if "remove" in action]
        assert [(one["path"], one["size"], one["partitionValues"]) for one in removed] == [
            (file.path, file.bytes, {}) for file in gone
        ]
        assert all(one["deletionTimestamp"] > 0 and one["extendedFileMetadata"] for one in removed)
        assert {a[kind]["dataChange"] for a in actions for kind in ("add", "remove") if kind in a} == {changes}


def test_optimize_and_vacuum_between_are_noticed_and_harmless(delta: Any) -> None:
    table = delta.open()
    old = table.files()
    DeltaTable(delta.path).optimize.compact()
    with pytest.raises(FileNotHeld):
        replace(table, delta, old)
    replace(table, delta, table.files())
    DeltaTable(delta.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert delta.rows() == held(delta) == [("ada", epoch) for epoch in range(3)]
    assert delta.open().volume() == Volume.of(delta.open().files())
    DeltaTable(delta.path).create_checkpoint()
    delta.commit(delta.open(), 3, 4)
    assert delta.rows() == held(delta) == [("ada", epoch) for epoch in range(4)]


def test_a_delta_table_is_mended_after_files_were_replaced_and_not_after_rows_were_taken_out(delta: Any) -> None:
    from tidegauge.remap.history import NO_HISTORY

    table = delta.open()
    replace(table, delta, table.files())
    Path(table.uris(table.files())[0]).unlink()
    mending = delta.sink.mend(table._output)
    assert mending.damage.unknown == ()
    mending.replace(
        mending.damage.epochs, 3, SCHEMA, delta.stage(range(3)), write=write_id(), told=lambda *_: NO_HISTORY
    )
    assert delta.rows() == [("ada", epoch) for epoch in range(3)]
    table = delta.open()
    table.commit(3, 4, SCHEMA, delta.stage([3], "bob"), remove=table.files(), write=write_id())
    DeltaTable(delta.path).delete()
    mending = delta.sink.mend(table._output)
    for epochs in ((range(3),), (range(3, 4),)):
        with pytest.raises(RowsTakenOut):
            mending.replace(epochs, 4, SCHEMA, [], write=write_id(), told=lambda *_: NO_HISTORY)


@pytest.mark.parametrize("name", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_rows_are_not_taken_out_of_a_table_whose_owner_forbids_it(delta: Any, name: str) -> None:
    DeltaTable(delta.path).alter.set_table_properties({name: "true"})
    table = delta.open()
    with pytest.raises(UnsupportedTable, match=name):
        table.commit(3, 4, SCHEMA, [], remove=table.files()[:1], write=write_id())
    replace(table, delta, table.files())  # which changes no rows
    assert delta.rows() == held(delta) == [("ada", epoch) for epoch in range(3)]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_with_the_jar_of_delta_reads_and_cleans_what_was_replaced(delta: Any) -> None:
    table = delta.open()
    replace(table, delta, table.files()[:2])
    table.commit(3, 4, SCHEMA, delta.stage([2, 3], "bob"), remove=table.files()[-1:], write=write_id())
    now = [["ada", 0], ["ada", 1], ["bob", 2], ["bob", 3]]
    rows = f"select user, _epoch from delta.`{delta.path}`"
    with delta_spark() as spark:
        assert sorted(spark.sql(rows)) == now
        assert sorted(spark.sql(f"{rows} version as of 3")) == [["ada", epoch] for epoch in range(3)]
        spark.sql(f"optimize delta.`{delta.path}`")
        spark.sql(f"vacuum delta.`{delta.path}` retain 0 hours")
        assert sorted(spark.sql(rows)) == now
    replace(delta.open(), delta, delta.open().files(), "ada")
    delta.commit(delta.open(), 4, 5)
    assert delta.open().upper == 5


# -- Parquet, and those who list its folders


@pytest.fixture
def parquet(tmp_path: Path, kinds: Callable[[str, str], Any]) -> Any:
    bench = kinds("parquet", str(tmp_path / "t"))
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    return bench


def test_folders_of_replacements_keep_the_partition_column_a_number(parquet: Any) -> None:
    import pyarrow.dataset as ds

    table = parquet.open()
    for _ in range(2):
        replace(table, parquet, table.files())
    parquet.commit(table, 3, 4)
    assert {f"from_epoch={'0' * place}000000000003" for place in range(3)} <= set(os.listdir(parquet.path))
    found = ds.dataset(parquet.path, format="parquet", partitioning="hive").to_table()
    assert sorted(found["from_epoch"].to_pylist()) == [3, 3, 3, 3]
    assert parquet.open().upper == 4


def test_a_folder_of_the_chain_that_is_gone_is_said_and_a_missing_file_too(parquet: Any) -> None:
    import shutil

    table = parquet.open()
    replace(table, parquet, table.files())
    parquet.commit(table, 3, 4)
    [whole, _] = [Path(uri) for uri in table.uris(table.files())]
    whole.rename(whole.with_name("_aside"))
    with pytest.raises(FilesChangedByOthers):
        parquet.open()
    whole.with_name("_aside").rename(whole)
    assert parquet.open().upper == 4
    shutil.rmtree(whole.parent)
    with pytest.raises(BrokenChain):
        parquet.open()


def test_a_table_with_replacements_is_not_mended_folder_by_folder(parquet: Any) -> None:
    table = parquet.open()
    replace(table, parquet, table.files())
    with pytest.raises(RowsTakenOut):
        parquet.sink.mend(table._output)


def test_what_was_taken_out_may_be_cleared_away(parquet: Any) -> None:
    import shutil

    table = parquet.open()
    table.commit(3, 4, SCHEMA, [], remove=table.files()[:1], write=write_id())
    assert held(parquet, as_of=2) == [("ada", epoch) for epoch in range(3)]
    shutil.rmtree(Path(parquet.path, "_removed"))
    assert held(parquet) == parquet.rows() == [("ada", 1), ("ada", 2)]
    with pytest.raises(FileNotFoundError):
        held(parquet, as_of=2)
