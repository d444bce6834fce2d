"""What every sink must hold, whatever it writes to."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import KINDS, table_bench
from tests.sinks.kafka.conftest import topic_bench

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafkasink import WriterFenced
from tidegauge.errors.sinks import (
    EpochColumnMissing,
    ForeignTable,
    MisplacedRows,
    NothingTakenOut,
    OutputIsNoTable,
    TableOfAnotherIncarnation,
    TableSchemaChanged,
    TableUpperMismatch,
    UnsupportedLocation,
)
from tidegauge.sinks import DeltaSink, KafkaSink, OutputId, ParquetSink, Sink, StagedFile
from tidegauge.sinks.kafka.messages import MESSAGES

OUTPUT = OutputId("shop", "orders", "a" * 32)
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])


def everything(path: str) -> list[str]:
    return sorted(str(p.relative_to(path)) for p in Path(path).rglob("*") if p.is_file())


@pytest.fixture(params=[*sorted(KINDS), "kafka"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A sink of every kind. What its kind is not (`Kind.traits`), the laws say of it too."""
    if request.param in KINDS:
        return table_bench(KINDS[request.param], str(tmp_path / "lake" / "orders"))
    broker = request.getfixturevalue("kafka_broker")
    return topic_bench(broker.servers, request.getfixturevalue("topic_name"), tmp_path / "staging")


def test_a_sink_is_a_picklable_value_that_describes_itself(bench: Any) -> None:
    assert isinstance(bench.sink, Sink)
    assert pickle.loads(pickle.dumps(bench.sink)) == bench.sink
    said = bench.sink.describe()
    assert said == json.loads(json.dumps(said))
    assert said["kind"] == bench.kind.name
    assert bench.folder in said.values()


def test_the_identity_of_a_sink_is_its_place_by_whatever_way_it_is_reached(bench: Any) -> None:
    assert {sink.identity for sink in bench.ways()} == {bench.sink.identity}
    assert bench.elsewhere().identity != bench.sink.identity
    assert bench.sink.shared == ("owner" not in bench.kind.traits)


def checked_by_the_type_checkers(delta: DeltaSink, parquet: ParquetSink, kafka: KafkaSink) -> list[Sink]:
    """The seam in full, tables and stagers included: a member that a sink lacks is a type error here."""
    return [delta, parquet, kafka]


def test_the_columns_of_a_table_are_known_from_its_first_commit_on(bench: Any) -> None:
    table, early = bench.open(), bench.open()
    stored = SCHEMA if "columns" in bench.kind.traits else MESSAGES
    assert table.schema is None
    large = pa.schema([("user", pa.large_string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
    table.commit(0, 1, large, [], write="1" * 32)
    assert table.schema == bench.open().schema == stored
    with pytest.raises(TableUpperMismatch):
        early.commit(0, 1, SCHEMA, [], write="2" * 32)
    assert early.schema == stored


def test_opening_a_table_that_is_not_there_writes_nothing(bench: Any) -> None:
    table = bench.open()
    assert (table.upper, table.files()) == (0, [])
    assert not Path(bench.path).exists()


def test_what_is_staged_is_seen_by_nobody_before_or_beside_a_commit(bench: Any) -> None:
    table = bench.open()
    bench.stage([0], "litter")
    assert bench.rows() == []
    bench.commit(table, 0, 1)
    bench.stage([1], "litter")
    assert bench.rows() == [("ada", 0)]


def test_a_commit_shows_all_its_files_and_moves_the_upper(bench: Any) -> None:
    table = bench.open()
    files = bench.stage([0, 1], "ada") + bench.stage([2], "bob")
    table.commit(0, 3, SCHEMA, files, write="1" * 32)
    assert bench.rows() == [("ada", 0), ("ada", 1), ("bob", 2)]
    assert table.upper == bench.open().upper == 3


def test_committed_files_come_back_in_commit_order_with_their_epochs_and_can_be_read(bench: Any) -> None:
    table = bench.open()
    for lower, upper in [(0, 2), (2, 3), (3, 6)]:
        bench.commit(table, lower, upper)
    if "files" not in bench.kind.traits:  # it is one file of all rows, and nothing to read
        for opened in (table, bench.open()):
            assert [(file.first_epoch, file.last_epoch, file.rows) for file in opened.files()] == [(0, 5, 6)]
            with pytest.raises(OutputIsNoTable):
                opened.uris(opened.files())
        return
    for opened in (table, bench.open()):
        files = opened.files()
        assert [(f.first_epoch, f.last_epoch, f.rows) for f in files] == [(0, 1, 2), (2, 2, 1), (3, 5, 3)]
        assert [Path(uri).stat().st_size for uri in opened.uris(files)] == [f.bytes for f in files]


def test_commits_without_rows_move_the_upper(bench: Any) -> None:
    table = bench.open()
    bench.commit(table, 0, 1, empty=True)
    bench.commit(table, 1, 5, empty=True)
    assert bench.rows() == []
    assert bench.open().upper == 5
    bench.commit(bench.open(), 5, 6)
    assert bench.rows() == [("ada", 5)]


@pytest.mark.parametrize(("lower", "upper"), [(0, 1), (0, 2), (0, 3), (1, 3), (3, 4)])
def test_a_commit_that_does_not_begin_at_the_upper_is_refused_and_changes_nothing(
    bench: Any, lower: int, upper: int
) -> None:
    table = bench.open()
    bench.commit(table, 0, 2)
    staged = bench.stage(range(lower, upper), "twice")
    before = everything(bench.path)
    with pytest.raises(TableUpperMismatch) as caught:
        table.commit(lower, upper, SCHEMA, staged, write="2" * 32)
    assert (caught.value.evidence["expected"], caught.value.evidence["actual"]) == (lower, 2)
    assert everything(bench.path) == before
    assert (table.upper, bench.open().upper) == (2, 2)
    assert bench.rows() == [("ada", 0), ("ada", 1)]


@pytest.mark.parametrize("base", [0, 3])
@pytest.mark.parametrize("winner", [0, 1])
def test_of_two_tables_opened_before_either_commits_exactly_one_wins(bench: Any, base: int, winner: int) -> None:
    if base:
        bench.commit(bench.open(), 0, base, empty=True)
    tables = [bench.open(), bench.open()]
    staged = [bench.stage([base], "first"), bench.stage([base], "second")]
    loser = 1 - winner
    tables[winner].commit(base, base + 1, SCHEMA, staged[winner], write="1" * 32)
    with pytest.raises(TableUpperMismatch):
        tables[loser].commit(base, base + 1, SCHEMA, staged[loser], write="2" * 32)
    assert bench.rows() == [(["first", "second"][winner], base)]
    assert tables[loser].upper == base + 1
    bench.commit(tables[loser], base + 1, base + 2, "later")
    assert len(bench.rows()) == 2


def test_a_table_that_was_opened_after_the_other_commit_is_refused_too(bench: Any) -> None:
    bench.commit(bench.open(), 0, 1)
    with pytest.raises(TableUpperMismatch):
        bench.commit(bench.open(), 0, 1, "late")
    assert bench.rows() == [("ada", 0)]


def test_discard_removes_what_is_staged_and_nothing_else(bench: Any) -> None:
    table = bench.open()
    bench.commit(table, 0, 1)
    before = everything(bench.path)
    staged = bench.stage([1]) + bench.stage([1])
    table.discard(staged)
    table.discard(staged)
    assert everything(bench.path) == before
    assert bench.rows() == [("ada", 0)]


def test_discard_of_files_that_were_committed_after_all_keeps_them(bench: Any) -> None:
    table = bench.open()
    staged = bench.stage([0])
    table.commit(0, 1, SCHEMA, staged, write="1" * 32)
    table.discard(staged)
    bench.open().discard(staged)
    assert bench.rows() == [("ada", 0)]


@pytest.mark.parametrize("path", ["/etc/hostname", "../elsewhere", "a/../../b", ""])
def test_discard_never_leaves_the_folder_of_the_table(bench: Any, path: str) -> None:
    table = bench.open()
    with pytest.raises(InvalidArgument):
        table.discard([StagedFile(path, 1, 1, 0, 0)])


def test_a_table_of_another_incarnation_is_refused(bench: Any) -> None:
    bench.commit(bench.open(), 0, 4)
    recreated = dataclasses.replace(OUTPUT, incarnation="b" * 32)
    with pytest.raises(TableOfAnotherIncarnation):
        bench.open(recreated)


def test_a_table_that_another_incarnation_created_meanwhile_is_refused_at_the_commit(bench: Any) -> None:
    late = bench.open(dataclasses.replace(OUTPUT, incarnation="b" * 32))
    staged = bench.stage([0], "late")
    bench.commit(bench.open(), 0, 1)
    with pytest.raises(TableOfAnotherIncarnation):
        late.commit(0, 1, SCHEMA, staged, write="1" * 32)
    assert bench.rows() == [("ada", 0)]


def test_a_table_of_another_output_is_refused_and_a_shared_place_keeps_the_progress_of_each(bench: Any) -> None:
    bench.commit(bench.open(), 0, 1)
    other = dataclasses.replace(OUTPUT, output="clicks")
    if "owner" in bench.kind.traits:
        with pytest.raises(ForeignTable):
            bench.open(other)
        return
    bench.commit(bench.open(other), 0, 2, "theirs")
    assert (bench.open().upper, bench.open(other).upper) == (1, 2)
    assert bench.rows() == [("ada", 0), ("theirs", 0), ("theirs", 1)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("user", pa.string()), ("amout", pa.float64())], "the nearest is 'amount'"),
        ([("user", pa.string())], "no column 'amount'"),
        ([("user", pa.string()), ("amount", pa.int64())], "'amount' is double in the table and int64 in the rows"),
    ],
)
def test_rows_with_other_columns_than_the_table_are_refused_and_the_difference_is_said(
    bench: Any, fields: Any, said: str
) -> None:
    table = bench.open()
    bench.commit(table, 0, 1)
    other = pa.schema([*fields, ("_epoch", pa.int64())])
    if "columns" not in bench.kind.traits:
        table.commit(1, 2, other, [], write="3" * 32)
        assert table.upper == 2
        return
    for opened in (table, bench.open()):
        with pytest.raises(TableSchemaChanged, match=said):
            opened.commit(1, 2, other, [], write="3" * 32)
        assert opened.upper == 1


def test_columns_in_another_order_or_layout_are_the_same_columns(bench: Any) -> None:
    table = bench.open()
    bench.commit(table, 0, 1)
    turned = pa.schema([("_epoch", pa.int64()), ("amount", pa.float64()), ("user", pa.large_string())])
    table.commit(1, 2, turned, [], write="3" * 32)
    assert table.upper == 2


def test_a_staged_file_that_is_gone_or_was_changed_is_not_committed(bench: Any) -> None:
    table = bench.open()
    [gone], [cut] = bench.stage([0]), bench.stage([0])
    Path(bench.path, gone.path).unlink()
    Path(bench.path, cut.path).write_bytes(b"PAR1")
    for file in (gone, cut):
        with pytest.raises(bench.kind.missing):
            table.commit(0, 1, SCHEMA, [file], write="1" * 32)
    assert bench.open().upper == 0


def test_files_with_rows_of_other_epochs_are_not_committed(bench: Any) -> None:
    table = bench.open()
    for epochs in ([0, 2], [5]):
        with pytest.raises(MisplacedRows):
            table.commit(0, 2, SCHEMA, bench.stage(epochs), write="1" * 32)
    assert bench.open().upper == 0


@pytest.mark.parametrize(("lower", "upper"), [(0, 0), (2, 1), (-1, 0)])
def test_a_span_without_epochs_is_refused(bench: Any, lower: int, upper: int) -> None:
    with pytest.raises(InvalidArgument):
        bench.open().commit(lower, upper, SCHEMA, [], write="1" * 32)


def test_rows_without_their_epoch_are_refused_before_anything_is_written(bench: Any) -> None:
    for schema in (pa.schema([("user", pa.string())]), pa.schema([("_epoch", pa.int32())])):
        with pytest.raises(EpochColumnMissing):
            bench.sink.check(schema)
    assert not Path(bench.path).exists()


def test_a_table_that_was_removed_is_noticed_at_the_next_commit(bench: Any) -> None:
    table = bench.open()
    bench.commit(table, 0, 3)
    bench.remove()
    with pytest.raises(bench.kind.lost):
        bench.commit(table, 3, 4)
    assert bench.rows() == []
    assert bench.open().upper == 0


def test_a_table_that_was_made_anew_in_its_place_is_noticed(bench: Any) -> None:
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)
    bench.remove()
    bench.commit(bench.open(), 0, 1, "anew")
    with pytest.raises((bench.kind.lost, WriterFenced)):
        bench.commit(table, 3, 4)
    assert bench.open().upper == 1
    assert bench.rows() == [("anew", 0)]


def test_files_are_taken_out_by_a_sink_that_has_files_alone(bench: Any) -> None:
    table = bench.open()
    bench.commit(table, 0, 2)
    old, staged = table.files(), bench.stage([0, 1, 2], "again")
    if "files" in bench.kind.traits:
        table.commit(2, 3, SCHEMA, staged, remove=old, write="1" * 32)
        assert bench.rows() == [("again", epoch) for epoch in range(3)]
        return
    with pytest.raises(NothingTakenOut):
        table.commit(2, 3, SCHEMA, staged, remove=old, write="1" * 32)
    assert bench.rows() == [("ada", 0), ("ada", 1)]
    assert bench.open().upper == 2


def test_only_mounted_file_systems_are_taken_and_no_secret_is_shown(bench: Any) -> None:
    for uri in ("s3://key:secret@bucket/t", "abfss://secret@c/t", "file://secret-host/t"):
        with pytest.raises(UnsupportedLocation) as caught:
            bench.at(uri)
        assert "secret" not in str(caught.value)
        assert "secret" not in repr(caught.value.evidence)
    assert bench.at(f"file://{bench.folder}") == bench.sink
    with pytest.raises(InvalidArgument):
        bench.at("  ")


def test_a_relative_path_is_that_of_the_program_and_not_of_the_task(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench.at(str(Path(bench.folder).relative_to(tmp_path))) == bench.sink
