"""Which columns make a message's key, value, headers, partition and time."""

from __future__ import annotations

import dataclasses
import json
import pickle
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafka import SettingTaken
from tidegauge.errors.kafkasink import ColumnUnfit, KeyMissing, TimeUnfit
from tidegauge.errors.secrets import SecretInClear
from tidegauge.errors.sinks import EpochColumnMissing, UnsupportedLocation
from tidegauge.sinks import KafkaSink, Sink
from tidegauge.sinks.kafka.messages import MessageLayout

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("raw", pa.binary()),
        ("map", pa.map_(pa.string(), pa.string())),
        ("pairs", pa.list_(pa.field("element", PAIR))),
        ("part", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("gone", pa.bool_()),
        ("_epoch", pa.int64()),
    ]
)
AT = datetime(2026, 11, 20, 17, 0, 0, 1999, tzinfo=UTC)
ROW: dict[str, Any] = {
    "id": 7,
    "user": "ada",
    "raw": b"\xff",
    "map": [("a", "1"), ("tidegauge-epoch", "9")],
    "pairs": [{"key": "b", "value": b"\x00"}, {"key": "tidegauge-x", "value": b""}, {"key": "b", "value": None}],
    "part": 3,
    "at": AT,
    "gone": False,
    "_epoch": 5,
}


def message(row: dict[str, Any] | None = None, **layout: Any) -> dict[str, Any]:
    made = MessageLayout("t", **layout)
    made.check(COLUMNS)
    [found] = made.encode(pa.RecordBatch.from_pylist([ROW | (row or {})], schema=COLUMNS)).to_pylist()
    return dict(found)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, None),
        ("user", b"ada"),
        ("raw", b"\xff"),
        ("id", b"7"),
        (("id",), b"7"),
        (("id", "user"), b'{"id":7,"user":"ada"}'),
        ("at", b'"2026-11-20T17:00:00.001999Z"'),
    ],
)
def test_a_key_is_bytes_as_they_are_or_json(key: Any, expected: bytes | None) -> None:
    assert message(key=key)["key"] == expected


def test_a_null_key_is_no_key() -> None:
    assert message({"user": None}, key="user")["key"] is None
    assert message({"id": None}, key="id")["key"] is None


def test_a_value_is_json_of_the_columns_that_are_not_used_otherwise() -> None:
    value = json.loads(message(key="id", headers="map", partition="part", timestamp="at")["value"])
    assert list(value) == ["id", "user", "raw", "pairs", "gone"]
    assert message(value=("user", "id"))["value"] == b'{"user":"ada","id":7}'


def test_a_single_column_is_the_value_as_it_is() -> None:
    assert message(value="raw")["value"] == b"\xff"
    assert message(value="user")["value"] == b"ada"
    assert message({"raw": None}, value="raw")["value"] is None


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("map", [{"key": "a", "value": b"1"}]),
        ("pairs", [{"key": "b", "value": b"\x00"}, {"key": "b", "value": None}]),
    ],
)
def test_headers_are_passed_on_but_for_those_that_are_ours(column: str, expected: Any) -> None:
    assert message(headers=column)["headers"] == expected
    assert message({column: None}, headers=column)["headers"] is None
    assert message({column: []}, headers=column)["headers"] == []


@pytest.mark.parametrize(("number", "expected"), [(0, 0), (None, None), (-1, -2), (2**40, -2)])
def test_a_partition_is_a_number_of_one_or_of_none(number: int | None, expected: int | None) -> None:
    assert message({"part": number}, partition="part")["partition"] == expected


def test_the_time_is_in_milliseconds_rounded_down() -> None:
    assert message(timestamp="at")["timestamp"] == int(AT.timestamp()) * 1000 + 1
    assert message({"at": None}, timestamp="at")["timestamp"] is None
    assert message({"at": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)}, timestamp="at")["timestamp"] == (
        253_402_300_799_999
    )


@pytest.mark.parametrize("at", [datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 0, 999, UTC)])
def test_an_instant_that_kafka_takes_for_the_time_of_sending_is_refused_with_its_epoch(at: datetime) -> None:
    assert message({"at": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)}, timestamp="at")["timestamp"] == 1
    with pytest.raises(TimeUnfit) as refused:
        message({"at": at}, timestamp="at")
    assert (refused.value.evidence["epoch"], refused.value.evidence["column"]) == (5, "at")


def test_a_deleted_row_is_a_tombstone_of_its_key() -> None:
    upsert: dict[str, Any] = {"key": "id", "envelope": "upsert", "deleted": "gone", "order": "part"}
    assert message({"gone": True}, **upsert)["value"] is None
    assert message({"gone": None}, **upsert)["value"] is not None
    assert message(**upsert)["order"] == 3


def test_an_upsert_without_a_key_is_refused_with_its_epoch() -> None:
    with pytest.raises(KeyMissing) as caught:
        message({"user": None}, key="user", envelope="upsert")
    assert caught.value.evidence["epoch"] == 5


@pytest.mark.parametrize(
    "layout",
    [
        {"key": "usr"},
        {"key": ("id", "usr")},
        {"key": "_epoch"},
        {"value": "id"},
        {"headers": "user"},
        {"headers": "part"},
        {"partition": "user"},
        {"timestamp": "id"},
        {"deleted": "id", "key": "id", "envelope": "upsert"},
        {"order": "map", "key": "id", "envelope": "upsert"},
    ],
)
def test_a_column_that_is_not_there_or_cannot_be_it_is_refused_before_anything_runs(layout: Any) -> None:
    with pytest.raises(ColumnUnfit):
        KafkaSink("b:1", topic="t", **layout).check(COLUMNS)
    KafkaSink("b:1", topic="t").check(COLUMNS)
    with pytest.raises(EpochColumnMissing):
        KafkaSink("b:1", topic="t").check(pa.schema([("id", pa.int64())]))


def test_a_sink_is_a_picklable_value_that_describes_itself_without_secrets() -> None:
    settings: dict[str, Any] = {"sasl.password": "env:KAFKA_PASSWORD", "security.protocol": "SASL_SSL"}
    sink = KafkaSink("a:1,b:2", topic="t", key=["id", "user"], settings=settings, exactly_once=False)
    assert isinstance(sink, Sink)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert sink.describe() == {
        "kind": "kafka",
        "servers": "a:1,b:2",
        "topic": "t",
        "key": ["id", "user"],
        "exactly_once": False,
        "settings": settings,
    }
    assert json.loads(json.dumps(sink.describe())) == sink.describe()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"servers": ""}, InvalidArgument),
        ({"topic": "a b"}, InvalidArgument),
        ({"topic": ".."}, InvalidArgument),
        ({"topic": "x" * 250}, InvalidArgument),
        ({"topic": "tidegauge-progress"}, InvalidArgument),
        ({"key": []}, InvalidArgument),
        ({"key": ["a", "a"]}, InvalidArgument),
        ({"key": ""}, InvalidArgument),
        ({"value": 7}, InvalidArgument),
        ({"envelope": "debezium"}, InvalidArgument),
        ({"envelope": "cdc", "key": "a"}, InvalidArgument),
        ({"envelope": "upsert"}, InvalidArgument),
        ({"deleted": "gone"}, InvalidArgument),
        ({"partitions": 0}, InvalidArgument),
        ({"partitions": True}, InvalidArgument),
        ({"transactional_id_prefix": "a\nb"}, InvalidArgument),
        ({"staging": "s3://key:secret@bucket/x"}, UnsupportedLocation),
        ({"settings": {"sasl.password": "hunter2"}}, SecretInClear),
        ({"settings": {"transactional.id": "x"}}, SettingTaken),
        ({"settings": {"enable.idempotence": False}}, SettingTaken),
        ({"settings": {"isolation.level": "read_uncommitted"}}, SettingTaken),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(wrong: dict[str, Any], error: type[TidegaugeError]) -> None:
    given: dict[str, Any] = {"servers": "b:1", "topic": "t"} | wrong
    with pytest.raises(error) as caught:
        KafkaSink(**given)
    assert "hunter2" not in str(caught.value)
    assert "secret" not in repr(caught.value.evidence) or error is SecretInClear


def test_tasks_stage_in_a_folder_of_this_user_alone_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sink = KafkaSink("b:1", topic="t", key="id")
    assert "staging" not in sink.describe()
    stager = sink.stage(COLUMNS, job="1" * 32, task=0)
    stager.write(pa.RecordBatch.from_pylist([ROW], schema=COLUMNS))
    [file] = stager.close()
    [folder] = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "t" / file.path).is_file()
    (tmp_path / "elsewhere").mkdir()
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgument):
        sink.stage(COLUMNS, job="1" * 32, task=0)


def test_a_relative_folder_is_that_of_the_program_and_not_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert KafkaSink("b:1", topic="t", staging="x").staging == str(tmp_path / "x")
    assert dataclasses.replace(KafkaSink("b:1", topic="t", staging="x"), topic="u").staging == str(tmp_path / "x")
