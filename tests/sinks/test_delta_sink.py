"""What is particular to Delta: others who work on the same table, its types, and the length of its log."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.sinks.altering import alter, delete_first_row

from tidegauge.errors import TidegaugeError
from tidegauge.errors.layout import PartitionedOtherwise
from tidegauge.errors.sinks import (
    ForeignTable,
    TableUpperMismatch,
    UnsupportedTable,
)
from tidegauge.sinks import DeltaSink, OutputId
from tidegauge.sinks.delta.log import DeltaLog
from tidegauge.sinks.vectors import deleted

OUTPUT = OutputId("shop", "orders", "a" * 32)
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])


@pytest.fixture
def delta(tmp_path: Path, kinds: Any) -> Any:
    return kinds("delta", str(tmp_path / "t"))


def others_commit(path: str, version: int) -> None:
    table = DeltaTable(path)
    properties = CommitProperties(app_transactions=[Transaction("somebody else", version)])
    table.create_write_transaction([], mode="append", schema=SCHEMA, commit_properties=properties)


def test_a_commit_records_both_transactions_and_says_what_it_is(delta: Any) -> None:
    table = delta.open()
    table.commit(0, 3, SCHEMA, delta.stage([0, 2]), write="d" * 32)
    seen = DeltaTable(delta.path)
    assert seen.transaction_version("shop:orders") == seen.transaction_version(f"shop:orders@{'a' * 32}") == 2
    [entry] = seen.history(1)
    assert {key: entry[key] for key in ("flow", "output", "lower", "upper", "write")} == {
        "flow": "shop",
        "output": "orders",
        "lower": 0,
        "upper": 3,
        "write": "d" * 32,
    }


def statistics(path: str, version: int) -> Any:
    log = Path(path, "_delta_log", f"{version:020d}.json").read_text()
    [add] = [json.loads(line)["add"] for line in log.splitlines() if "add" in json.loads(line)]
    return json.loads(add["stats"])


def test_statistics_let_a_reader_skip_files_by_epoch_and_by_any_column(delta: Any) -> None:
    table = delta.open()
    delta.commit(table, 0, 3)
    assert statistics(delta.path, 0) == {
        "numRecords": 3,
        "nullCount": {"user": 0, "amount": 0, "_epoch": 0},
        "minValues": {"user": "ada", "amount": 1.5, "_epoch": 0},
        "maxValues": {"user": "ada", "amount": 1.5, "_epoch": 2},
    }


@pytest.mark.parametrize("asked", [{"NumIndexedCols": "-1"}, {"StatsColumns": "c39"}])
def test_a_table_that_wants_statistics_of_columns_that_have_none_gets_none(
    tmp_path: Path, asked: dict[str, str]
) -> None:
    """delta-rs takes a column without a least value for one of nulls alone, where others have one."""
    wide = pa.schema([*((f"c{i}", pa.int64()) for i in range(40)), ("_epoch", pa.int64())])
    sink = DeltaSink(str(tmp_path / "t"))
    DeltaTable.create(
        sink.path, wide, configuration={f"delta.dataSkipping{name}": value for name, value in asked.items()}
    )
    stager = sink.stage(wide, job="c" * 32, task=0)
    stager.write(pa.RecordBatch.from_arrays([pa.array([0])] * 41, schema=wide))
    sink.open(OUTPUT).commit(0, 1, wide, stager.close(), write="1")
    assert statistics(sink.path, 1).keys() == {"numRecords", "nullCount"}
    assert pl.scan_delta(sink.path).filter(pl.col("c39") == 0).collect().height == 1
    assert _delta_rows(sink.path, "c39 = 0") == _delta_rows(sink.path)


def test_commits_of_others_do_not_disturb_ours(delta: Any) -> None:
    table = delta.open()
    for epoch in range(4):
        delta.commit(table, epoch, epoch + 1)
        others_commit(delta.path, epoch)
    assert delta.rows() == [("ada", epoch) for epoch in range(4)]


def test_a_commit_of_others_between_comparison_and_append_is_followed(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = delta.open()
    delta.commit(table, 0, 1)
    real, calls = os.link, []

    def interrupted(*args: Any) -> None:
        calls.append(1)
        if len(calls) <= 3:
            others_commit(delta.path, len(calls))
        real(*args)

    monkeypatch.setattr(os, "link", interrupted)
    delta.commit(table, 1, 2)
    assert len(calls) == 4
    assert delta.rows() == [("ada", 0), ("ada", 1)]


def test_a_driver_that_commits_between_comparison_and_append_wins_and_the_other_changes_nothing(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = delta.open(), delta.open()
    delta.commit(table, 0, 1)
    real = os.link

    def interrupted(*args: Any) -> None:
        monkeypatch.setattr(os, "link", real)
        delta.commit(other, 1, 2)
        real(*args)

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(TableUpperMismatch):
        delta.commit(table, 1, 2)
    assert delta.rows() == [("ada", 0), ("ada", 1)]


def test_what_others_change_between_comparison_and_append_is_seen(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = delta.open()
    delta.commit(table, 0, 1)
    real = os.link

    def interrupted(*args: Any) -> None:
        monkeypatch.setattr(os, "link", real)
        DeltaTable(delta.path).alter.add_constraint({"positive": "amount > 0"})
        real(*args)

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(UnsupportedTable, match="positive"):
        delta.commit(table, 1, 2)
    assert delta.rows() == [("ada", 0)]


def test_an_error_after_the_entry_was_written_is_a_commit(delta: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = delta.open()
    delta.commit(table, 0, 1)
    real = os.link

    def fails_late(*args: Any) -> None:
        real(*args)
        raise OSError(errno.EIO, "the answer was lost")

    monkeypatch.setattr(os, "link", fails_late)
    delta.commit(table, 1, 2)
    assert table.upper == 2
    assert delta.rows() == [("ada", 0), ("ada", 1)]


def test_a_name_that_is_taken_by_our_own_entry_is_a_commit(delta: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may repeat a request whose answer it has lost, and finds what it has done itself."""
    table = delta.open()
    delta.commit(table, 0, 1)
    real = os.link

    def repeated(*args: Any) -> None:
        real(*args)
        real(*args)

    monkeypatch.setattr(os, "link", repeated)
    delta.commit(table, 1, 2)
    assert delta.rows() == [("ada", 0), ("ada", 1)]


def test_an_error_before_the_entry_was_written_goes_through_and_changes_nothing(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = delta.open()
    delta.commit(table, 0, 1)

    def fails(*_args: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fails)
        with pytest.raises(OSError, match="no space left"):
            delta.commit(table, 1, 2)
    assert table.upper == 1
    assert not list(Path(delta.path, "_delta_log").glob("*.tmp"))
    delta.commit(table, 1, 2)
    assert delta.rows() == [("ada", 0), ("ada", 1)]


def test_a_commit_reads_nothing_of_the_files_that_are_there(delta: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs the same in a table of any age: only the entries since our last one are looked at."""
    table = delta.open()
    delta.commit(table, 0, 1)
    delta.commit(table, 1, 2)
    monkeypatch.setattr("tidegauge.sinks.delta.log.snapshot", None)
    monkeypatch.setattr(os, "listdir", None)
    for epoch in range(2, 20):
        delta.commit(table, epoch, epoch + 1)
    monkeypatch.undo()
    assert delta.open().upper == 20


@pytest.mark.parametrize(
    "change",
    [
        {"minReaderVersion": 1, "minWriterVersion": 8},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["rowTracking"]},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]},
    ],
)
def test_a_protocol_that_is_not_known_is_refused(delta: Any, change: dict[str, Any]) -> None:
    table = delta.open()
    delta.commit(table, 0, 1)
    Path(delta.path, "_delta_log", f"{1:020d}.json").write_text(json.dumps({"protocol": change}) + "\n")
    for opened in (table, delta.open()):
        with pytest.raises(UnsupportedTable):
            delta.commit(opened, 1, 2)
    assert delta.open().upper == 1


def test_a_table_that_others_have_partitioned_is_refused(delta: Any) -> None:
    """The files of a commit have no partition values, and so would be rows of no partition."""
    table = delta.open()
    delta.commit(table, 0, 2)
    alter(delta.path, {}, [], partitioned=["user"])
    with pytest.raises(PartitionedOtherwise, match="parted by user"):
        delta.commit(table, 2, 3)


def test_after_optimize_the_files_are_still_known_by_their_epochs(delta: Any) -> None:
    table = delta.open()
    for epoch in range(5):
        delta.commit(table, epoch, epoch + 1)
    DeltaTable(delta.path).optimize.compact()
    [merged] = table.files()
    assert (merged.first_epoch, merged.last_epoch, merged.rows) == (0, 4, 5)
    delta.commit(table, 5, 6)
    assert [file.first_epoch for file in delta.open().files()] == [0, 5]
    assert [Path(uri).exists() for uri in table.uris(table.files())] == [True, True]


def test_files_rewritten_without_statistics_of_the_epoch_are_asked_themselves(tmp_path: Path) -> None:
    wide = pa.schema([*((f"c{i}", pa.int64()) for i in range(40)), ("_epoch", pa.int64())])
    sink = DeltaSink(str(tmp_path / "t"))
    table = sink.open(OUTPUT)
    for epoch in range(2):
        stager = sink.stage(wide, job=f"{epoch:032x}", task=0)
        stager.write(pa.RecordBatch.from_arrays([pa.array([epoch])] * 41, schema=wide))
        table.commit(epoch, epoch + 1, wide, stager.close(), write=str(epoch))
    DeltaTable(sink.path).optimize.compact()
    actions = pa.table(DeltaTable(sink.path).get_add_actions(flatten=True))
    assert "min._epoch" not in actions.schema.names or actions["min._epoch"].to_pylist() == [None]
    [merged] = table.files()
    assert (merged.first_epoch, merged.last_epoch, merged.rows) == (0, 1, 2)


def test_rows_deleted_by_others_do_not_come_back_and_do_not_move_the_upper(delta: Any) -> None:
    table = delta.open()
    delta.commit(table, 0, 3)
    DeltaTable(delta.path).delete("_epoch = 1")
    assert delta.open().upper == 3
    delta.commit(table, 3, 4)
    assert delta.rows() == [("ada", 0), ("ada", 2), ("ada", 3)]


def test_vacuum_spares_what_was_committed(delta: Any) -> None:
    table = delta.open()
    delta.commit(table, 0, 1)
    litter = delta.stage([1])
    DeltaTable(delta.path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert delta.rows() == [("ada", 0)]
    assert not Path(delta.path, litter[0].path).exists()


def test_a_table_that_holds_other_data_is_refused(tmp_path: Path) -> None:
    for name, data in (("plain", {"user": ["x"]}), ("alike", {"user": ["x"], "amount": [1.0], "_epoch": [0]})):
        path = str(tmp_path / name)
        write_deltalake(path, pa.table(data))
        with pytest.raises(ForeignTable):
            DeltaSink(path).open(OUTPUT)


def test_an_empty_table_that_was_made_for_the_output_is_taken(delta: Any) -> None:
    DeltaTable.create(delta.path, SCHEMA, description="made by hand")
    delta.commit(delta.open(), 0, 1)
    assert delta.rows() == [("ada", 0)]


@pytest.mark.parametrize("sign", ["\u2028", "\x85", "\x1c", "\r"])
def test_a_text_may_have_what_python_takes_for_the_end_of_a_line(delta: Any, sign: str) -> None:
    """The log's statistics have it as it is."""
    table = delta.open()
    for epoch in range(2):
        delta.commit(table, epoch, epoch + 1, f"a{sign}b")
    assert delta.rows() == [(f"a{sign}b", 0), (f"a{sign}b", 1)]
    assert [delta.open().version_of(epoch) for epoch in range(2)] == ["0", "1"]


def test_a_partitioned_table_is_refused(delta: Any) -> None:
    DeltaTable.create(delta.path, SCHEMA, partition_by=["user"])
    with pytest.raises(ForeignTable, match="partitioned by user"):
        delta.open()


def test_a_table_with_a_constraint_is_refused_because_files_are_not_checked_against_it(delta: Any) -> None:
    delta.commit(delta.open(), 0, 1)
    DeltaTable(delta.path).alter.add_constraint({"positive": "amount > 0"})
    with pytest.raises(UnsupportedTable, match="positive"):
        delta.commit(delta.open(), 1, 2)


def test_a_table_whose_columns_are_mapped_is_refused(delta: Any) -> None:
    delta.commit(delta.open(), 0, 1)
    alter(delta.path, {"delta.columnMapping.mode": "name"}, ["columnMapping"])
    with pytest.raises(UnsupportedTable, match="column mapping"):
        delta.commit(delta.open(), 1, 2)


def test_files_with_deletion_vectors_say_which_rows_are_deleted(delta: Any) -> None:
    table = delta.open()
    delta.commit(table, 0, 3)
    [file] = table.files()
    alter(delta.path, {"delta.enableDeletionVectors": "true"}, ["deletionVectors"])
    assert table.files() == [file]  # allowed, but not used yet
    delete_first_row(delta.path, file)
    [marked] = delta.open().files()
    assert (marked.path, marked.rows, deleted(marked.deletions).tolist()) == (file.path, file.rows - 1, [0])
    table = delta.open()
    assert table.volume().rows == file.rows - 1
    delta.commit(table, 3, 4)
    assert {one.path: one.deletions for one in delta.open().files()}[file.path] == marked.deletions


def test_a_checkpoint_is_written_every_hundred_versions(delta: Any) -> None:
    table = delta.open()
    for epoch in range(205):
        delta.commit(table, epoch, epoch + 1, empty=True)
        if epoch % 100 == 0:
            table.end()
    found = sorted(path.name[:20] for path in Path(delta.path, "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(version) for version in found] == [100, 200]
    assert delta.open().upper == 205


def test_a_checkpoint_that_fails_does_not_undo_the_commit(
    delta: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: DeltaTable) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fails)
    table = delta.open()
    for epoch in range(102):
        delta.commit(table, epoch, epoch + 1, empty=True)
    table.end()
    assert table.upper == 102
    assert "no checkpoint" in caplog.text


def test_every_kind_of_column_comes_back_as_it_was_written(tmp_path: Path) -> None:
    from datetime import UTC, date, datetime
    from decimal import Decimal

    values: dict[str, tuple[Any, Any]] = {
        "local": (pa.timestamp("ms"), datetime(2026, 11, 20, 17)),  # noqa: DTZ001 - a local time
        "instant": (pa.timestamp("us", tz="Europe/Paris"), datetime(2026, 11, 20, 17, tzinfo=UTC)),
        "day": (pa.date32(), date(2026, 11, 20)),
        "price": (pa.decimal128(10, 2), Decimal("12.34")),
        "tags": (pa.large_list(pa.large_string()), ["a", None]),
        "place": (pa.struct([("lat", pa.float64()), ("names", pa.list_(pa.string()))]), {"lat": 1.0, "names": ["x"]}),
        "counts": (pa.map_(pa.string(), pa.int32()), [("k", 1)]),
        "kind": (pa.dictionary(pa.int8(), pa.string()), "k"),
        "raw": (pa.binary(), b"\x00\xff"),
        "_epoch": (pa.int64(), 0),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in values.items()])
    sink = DeltaSink(str(tmp_path / "t"))
    sink.check(schema)
    table = sink.open(OUTPUT)
    stager = sink.stage(schema, job="c" * 32, task=0)
    arrays = [pa.array([value], kind) for kind, value in values.values()]
    stager.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
    table.commit(0, 1, schema, stager.close(), write="1")
    assert "timestampNtz" in (DeltaTable(sink.path).protocol().writer_features or [])
    [row] = _delta_rows(sink.path)
    assert row == {name: value for name, (_, value) in values.items()}
    table.commit(1, 2, schema, [], write="2")  # and it is the same schema afterwards


def _delta_rows(path: str, where: str = "true") -> list[dict[str, Any]]:
    """Read with deltalake's own engine, not with the Parquet reader that we write with."""
    from deltalake import QueryBuilder

    found = pa.table(
        QueryBuilder().register("t", DeltaTable(path)).execute(f"select * from t where {where}").read_all()
    )
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@given(st.sampled_from(["shop", "s.h-o_p"]), st.integers(0, 2**40))
def test_errors_of_sinks_survive_the_way_from_task_to_driver(flow: str, expected: int) -> None:
    from tidegauge.errors.sinks import TableUpperMismatch

    error = TableUpperMismatch(table="t", output=f"{flow}:o", expected=expected, actual=0)
    again = TidegaugeError.decode(json.loads(json.dumps(error.encode())))
    assert (type(again), str(again)) == (TableUpperMismatch, str(error))


def test_a_commit_compares_what_it_looked_at_though_files_are_discarded_meanwhile(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discarding looks at the table too, in another thread. Here somebody else commits the epoch just before it."""
    table, other = delta.open(), delta.open()
    delta.commit(table, 0, 1)
    others, ours, vain = delta.stage([1], "other"), delta.stage([1], "ours"), delta.stage([2], "vain")
    volume_with = DeltaLog._volume_with

    def late(log: DeltaLog, *given: Any) -> Any:
        monkeypatch.setattr(DeltaLog, "_volume_with", volume_with)
        other.commit(1, 2, SCHEMA, others, write="d" * 32)
        log.discard(vain)
        return volume_with(log, *given)

    monkeypatch.setattr(DeltaLog, "_volume_with", late)
    with pytest.raises(TableUpperMismatch):
        table.commit(1, 2, SCHEMA, ours, write="e" * 32)
    assert delta.rows() == [("ada", 0), ("other", 1)]
    assert not Path(delta.path, vain[0].path).exists()


def test_a_task_that_only_stages_does_not_load_delta_rs(tmp_path: Path) -> None:
    """It is loaded in each worker of Spark, where memory counts."""
    stages = f"""
import sys
import threading
import pyarrow as pa
import tidegauge as tg
rows = pa.record_batch({{"id": [1], "_epoch": [0]}})
stager = tg.DeltaSink({str(tmp_path)!r}).stage(rows.schema, job="0" * 32, task=0)
stager.write(rows)
[file] = stager.close()
sys.exit("deltalake" in sys.modules or file.rows != 1)
"""
    assert subprocess.run([sys.executable, "-c", stages], check=False).returncode == 0


def test_another_writer_at_the_same_time_takes_versions_between_ours_and_nobody_loses_one(delta: Any) -> None:
    """delta-rs commits as fast as it can, from another thread; it puts its entries as we do."""
    table = delta.open()
    delta.commit(table, 0, 1)
    done, theirs = threading.Event(), list[int]()

    def commit() -> None:
        while not done.is_set() and len(theirs) < 200:
            others_commit(delta.path, len(theirs))
            theirs.append(len(theirs))

    other = threading.Thread(target=commit)
    other.start()
    for epoch in range(1, 31):
        delta.commit(table, epoch, epoch + 1)
    done.set()
    other.join()
    seen = DeltaTable(delta.path)
    assert seen.version() == 30 + len(theirs)
    assert seen.transaction_version("somebody else") == len(theirs) - 1
    assert delta.rows() == [("ada", epoch) for epoch in range(31)]


@pytest.mark.parametrize("lower", [0, 1])
def test_a_commit_that_is_there_and_could_not_be_made_durable_is_before_it_is_found(
    lower: int, delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegauge import disk as places
    from tidegauge.sinks.delta import appending as module

    table = delta.open()
    for epoch in range(lower):
        delta.commit(table, epoch, epoch + 1)
    staged = delta.stage([lower])

    def failing(_path: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(module, "synchronise", failing)
        patch.setattr(places, "synchronise", failing)
        for _ in range(2):  # the second time the table has it, which says nothing of the disk
            with pytest.raises(OSError, match="Input/output"):
                table.commit(lower, lower + 1, SCHEMA, staged, write="1")
    done: list[str] = []
    monkeypatch.setattr(module, "synchronise", lambda path: done.append(Path(path).name))
    with pytest.raises(TableUpperMismatch):
        table.commit(lower, lower + 1, SCHEMA, staged, write="1")
    assert done[:2] == [f"{lower:020}.json", "_delta_log"]
