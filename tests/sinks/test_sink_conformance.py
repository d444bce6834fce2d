"""Every sink holds the laws of the kit for connectors, which a user's own sink is checked with, too.

Beyond the laws: which errors ours raise, and what they say.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.benches import TableBench, TopicBench
from tests.sinks.conftest import KINDS, table_bench
from tests.sinks.kafka.conftest import topic_bench

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.objects import CredentialsInAddress
from tidegauge.errors.sinks import (
    EpochColumnMissing,
    ForeignTable,
    MisplacedRows,
    OutputIsNoTable,
    TableOfAnotherIncarnation,
    TableSchemaChanged,
    TableUpperMismatch,
    UnsupportedLocation,
)
from tidegauge.sinks import DeltaSink, KafkaSink, OutputId, ParquetSink, Sink, StagedFile
from tidegauge.sinks.kafka.messages import MESSAGES
from tidegauge.testing import Endpoint
from tidegauge.testing.kit import check_sink

OUTPUT = OutputId("shop", "orders", "a" * 32)
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])


@pytest.mark.parametrize("crashes", [6, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_table_holds_every_law(kind: str, crashes: int) -> None:
    report = check_sink(lambda folder: TableBench(folder, kind), crashes=crashes, deadline=240)
    report.require()
    untried = {finding.name for finding in report.findings if finding.untried}
    assert untried == ({"sweeping clears the litter of drivers that died"} if kind == "delta" else set())


@pytest.mark.parametrize("crashes", [0, pytest.param(12, marks=pytest.mark.long)])
def test_a_topic_holds_every_law(kafka_broker: Endpoint, crashes: int) -> None:
    check_sink(lambda folder: TopicBench(folder, kafka_broker), crashes=crashes, deadline=240).require()


@pytest.fixture(params=[*sorted(KINDS), "kafka"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A sink of every kind. What its kind is not (`Kind.traits`), the tests say of it too."""
    if request.param in KINDS:
        return table_bench(KINDS[request.param], str(tmp_path / "lake" / "orders"))
    broker = request.getfixturevalue("kafka_broker")
    return topic_bench(broker.servers, request.getfixturevalue("topic_name"), tmp_path / "staging")


def checked_by_the_type_checkers(delta: DeltaSink, parquet: ParquetSink, kafka: KafkaSink) -> list[Sink]:
    """The seam in full, tables and stagers included: a member that a sink lacks is a type error here."""
    return [delta, parquet, kafka]


def test_a_sink_says_its_kind_its_folder_and_whether_it_is_shared(bench: Any) -> None:
    said = bench.sink.describe()
    assert said["kind"] == bench.kind.name
    assert bench.folder in said.values()
    assert bench.sink.shared == ("owner" not in bench.kind.traits)


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


def test_each_refusal_is_an_error_of_its_own(bench: Any) -> None:
    early = bench.open(dataclasses.replace(OUTPUT, incarnation="b" * 32))
    table = bench.open()
    bench.commit(table, 0, 2)
    with pytest.raises(TableUpperMismatch) as caught:
        bench.commit(table, 0, 1)
    assert (caught.value.evidence["expected"], caught.value.evidence["actual"]) == (0, 2)
    for lower, upper in ((0, 0), (2, 1), (-1, 0)):
        with pytest.raises(InvalidArgument):
            table.commit(lower, upper, SCHEMA, [], write="1" * 32)
    for epochs in ([2, 3], [1, 2], [5]):
        with pytest.raises(MisplacedRows):
            table.commit(2, 3, SCHEMA, bench.stage(epochs), write="1" * 32)
    for path in ("/etc/hostname", "../elsewhere", "a/../../b", ""):
        with pytest.raises(InvalidArgument):
            table.discard([StagedFile(path, 1, 1, 0, 0)])
    [gone], [cut] = bench.stage([2]), bench.stage([2])
    Path(bench.path, gone.path).unlink()
    Path(bench.path, cut.path).write_bytes(b"PAR1")
    for file in (gone, cut):
        with pytest.raises(bench.kind.missing):
            table.commit(2, 3, SCHEMA, [file], write="1" * 32)
    with pytest.raises(TableOfAnotherIncarnation):
        bench.open(dataclasses.replace(OUTPUT, incarnation="b" * 32))
    with pytest.raises(TableOfAnotherIncarnation):
        early.commit(0, 1, SCHEMA, [], write="1" * 32)
    if "owner" in bench.kind.traits:
        with pytest.raises(ForeignTable):
            bench.open(dataclasses.replace(OUTPUT, output="clicks"))
    bench.remove()
    with pytest.raises(bench.kind.lost):
        bench.commit(table, 2, 3)


def test_rows_with_other_columns_than_the_table_are_refused_and_the_difference_is_said(bench: Any) -> None:
    table = bench.open()
    large = pa.schema([("user", pa.large_string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
    table.commit(0, 1, large, [], write="1" * 32)
    if "columns" not in bench.kind.traits:
        assert table.schema == MESSAGES
        table.commit(1, 2, pa.schema([("user", pa.string()), ("_epoch", pa.int64())]), [], write="3" * 32)
        return
    assert table.schema == SCHEMA
    for fields, said in (
        ([("user", pa.string()), ("amout", pa.float64())], "the nearest is 'amount'"),
        ([("user", pa.string())], "no column 'amount'"),
        ([("user", pa.string()), ("amount", pa.int64())], "'amount' is double in the table and int64 in the rows"),
    ):
        with pytest.raises(TableSchemaChanged, match=said):
            table.commit(1, 2, pa.schema([*fields, ("_epoch", pa.int64())]), [], write="3" * 32)


def test_rows_without_their_epoch_are_refused_before_anything_is_written(bench: Any) -> None:
    for schema in (pa.schema([("user", pa.string())]), pa.schema([("_epoch", pa.int32())])):
        with pytest.raises(EpochColumnMissing):
            bench.sink.check(schema)
    assert not Path(bench.path).exists()


def test_other_places_are_refused_and_no_secret_is_shown(bench: Any) -> None:
    for uri in ("s3://key:secret@bucket/t", "abfss://key:secret@c/t", "hdfs://secret/t", "file://secret-host/t"):
        with pytest.raises((UnsupportedLocation, CredentialsInAddress)) as caught:
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
