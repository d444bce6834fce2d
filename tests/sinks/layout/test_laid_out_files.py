"""Files of a layout: each of one partition, sorted, of about a size, in bounded memory; and what is refused."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.layout import (
    LaidOutByKey,
    PartitionColumnUnfit,
    PartitionValueUnfit,
    SortColumnUnfit,
    TooManyPartitions,
)
from tidegauge.sinks import DeltaSink, ParquetSink, StagedFile
from tidegauge.sinks.layout import stager as staging_room
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.stager import LaidOutStager
from tidegauge.sinks.layout.transforms import bucket, day, hour, month
from tidegauge.sinks.location import LocalFiles

SCHEMA = pa.schema([("country", pa.string()), ("id", pa.int64()), ("n", pa.int64()), ("_epoch", pa.int64())])
JOB = "c" * 32


def stager(folder: Path, layout: FileLayout, **more: Any) -> LaidOutStager:
    return LaidOutStager(LocalFiles(str(folder)), "", layout, SCHEMA, job=JOB, task=0, **more)


def layout(partition: Any = "country", sort: Any = None, size: Any = None) -> FileLayout:
    return FileLayout.of("DeltaSink", partition, sort, size)


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def numbered(numbers: range) -> pa.RecordBatch:
    """Return rows whose ids are in no order."""
    n = pa.array(numbers, pa.int64())
    ids = pa.array([at * 7919 % 200_003 for at in numbers], pa.int64())
    arrays = [pa.repeat("DE", len(n)), ids, n, pa.repeat(pa.scalar(0, pa.int64()), len(n))]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rows_in(folder: Path, file: StagedFile) -> list[dict[str, Any]]:
    return pq.ParquetFile(folder / file.path).read().to_pylist()  # type: ignore[no-any-return]


ROWS = st.lists(
    st.tuples(st.sampled_from(["DE", "FR", "a/b", None]), st.integers(0, 99), st.integers(0, 9), st.integers(0, 3)),
    max_size=30,
)


@deep(60)
@given(
    batches=st.lists(ROWS, max_size=6),
    gathered=st.integers(1, 50),
    most_open=st.integers(1, 3),
    parted=st.sampled_from([None, "country", ("country", bucket(3, "id"))]),
    sort=st.sampled_from([None, "n", ("n", "id")]),
)
def test_what_is_written_is_what_is_staged(
    batches: list[Any],
    gathered: int,
    most_open: int,
    parted: Any,
    sort: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("stage")
    wanted = layout(parted, sort)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging_room, "GATHERED_ROWS", gathered)
        patch.setattr(staging_room, "OPEN", most_open)
        writing = stager(folder, wanted)
        for rows in batches:
            writing.write(batch(rows))
            assert sum(one.open is not None for one in writing._files.values()) <= most_open
        files = writing.close()
    found: Counter[Any] = Counter()
    for file in files:
        values = dict(file.partition)
        listed = rows_in(folder, file)
        assert tuple(values) == wanted.names
        assert not set(values) & set(listed[0])
        for row in listed:
            row.setdefault("country", values.get("country"))
            found[tuple(row[name] for name in SCHEMA.names)] += 1
        if wanted.sort:
            assert listed == sorted(listed, key=lambda row: tuple(row[name] for name in wanted.sort))
        epochs = [row["_epoch"] for row in listed]
        assert (file.rows, file.first_epoch, file.last_epoch) == (len(listed), min(epochs), max(epochs))
        assert file.bytes == (folder / file.path).stat().st_size
    assert found == Counter(row for rows in batches for row in rows)
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there == {file.path for file in files}


def test_partitions_that_go_on_are_written_into_one_file_and_others_do_not_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_room, "GATHERED_ROWS", 10)
    writing = stager(tmp_path, layout())
    for epoch in range(20):
        writing.write(batch([("DE", 1, 1, epoch)] * 5 + [(f"once-{epoch}", 1, 1, epoch)] * 5))
    files = writing.close()
    assert Counter(file.partition[0][1] for file in files)["DE"] == 1
    assert len(files) == 21


def test_a_file_ends_at_about_its_size(tmp_path: Path) -> None:
    for name, wanted in (("parted", layout(size="64KB")), ("sorted", layout(None, "n", 65536))):
        writing = stager(tmp_path / name, wanted)
        for start in range(0, 100_000, 10_000):
            writing.write(numbered(range(start, start + 10_000)))
        files = writing.close()
        assert len(files) > 2
        assert all(file.bytes < 2 * 65536 for file in files)
    ends = [(rows[0]["n"], rows[-1]["n"]) for rows in (rows_in(tmp_path / "sorted", file) for file in files)]
    assert all(one[1] <= other[0] for one, other in pairwise(ends))


def test_a_value_that_cannot_be_that_of_a_partition_is_refused_with_its_epoch(tmp_path: Path) -> None:
    writing = stager(tmp_path, layout())
    writing.write(batch([("DE", 1, 1, 3)]))
    with pytest.raises(PartitionValueUnfit, match=r"epoch 4 .*an empty text") as caught:
        writing.write(batch([("DE", 1, 1, 3), ("", 1, 1, 4)]))
    assert caught.value.evidence["column"] == "country"
    writing.abort()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_column_with_a_value_for_nearly_each_row_is_refused_before_it_is_written(tmp_path: Path) -> None:
    writing = LaidOutStager(LocalFiles(str(tmp_path)), "", layout("id"), SCHEMA, job=JOB, task=0, most=100)
    for epoch in range(5):  # another epoch has partitions of its own
        writing.write(batch([("DE", 1000 * epoch + at, 1, epoch) for at in range(100)]))
    with pytest.raises(TooManyPartitions, match="101 partitions in epoch 4"):
        writing.write(batch([("DE", 7, 1, 4)]))
    writing.abort()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_memory_is_bounded_whatever_the_number_of_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_room, "GATHERED_BYTES", 100_000)
    writing = LaidOutStager(LocalFiles(str(tmp_path)), "", layout(bucket(50, "id")), SCHEMA, job=JOB, task=0)
    for start in range(0, 20_000, 2_000):
        writing.write(numbered(range(start, start + 2_000)))
        assert writing._waiting.bytes < 200_000
        assert len(writing._last) <= staging_room.OPEN
    assert sum(file.rows for file in writing.close()) == 20_000


INSTANTS = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("x", pa.float64()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(9, 2)),
        ("größe", pa.string()),
        ("at_day", pa.string()),
        ("list", pa.list_(pa.int64())),
        ("_epoch", pa.int64()),
    ]
)


@pytest.mark.parametrize("sink", [DeltaSink, ParquetSink])
@pytest.mark.parametrize(
    ("partition_by", "said"),
    [
        ("nothing", "no such column"),
        ("_epoch", "each file has it"),
        ("x", "double"),
        ("price", "decimal"),
        ("raw", "binary"),
        ("list", "list"),
        ("at", "an instant as a partition"),
        (day("x"), "double has no days"),
        (hour("raw"), "binary has no hours"),
        (month("nothing"), "no such column"),
        (bucket(8, "x"), "no hash of double"),
        (day("at"), "has a column 'at_day' already"),
        ("größe", "ASCII"),
    ],
)
def test_columns_that_a_table_cannot_be_parted_by_are_refused_early(
    sink: Any, partition_by: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(PartitionColumnUnfit, match=said):
        sink(str(tmp_path / "t"), partition_by=partition_by).check(INSTANTS)
    assert not (tmp_path / "t").exists()


def test_columns_that_rows_cannot_be_sorted_by_are_refused_early(tmp_path: Path) -> None:
    for sort_by, said in (("nothing", "no such"), ("list", "no order"), ("at_day", "one value")):
        with pytest.raises(SortColumnUnfit, match=said):
            DeltaSink(str(tmp_path), partition_by="at_day", sort_by=sort_by).check(INSTANTS)


@pytest.mark.parametrize(
    "options",
    [
        {"partition_by": []},
        {"partition_by": [7]},
        {"partition_by": ["a", "A"]},
        {"partition_by": [day("at"), "at_day"]},
        {"sort_by": ["a", "a"]},
        {"sort_by": [day("at")]},
        {"file_size": "128"},
        {"file_size": "a lot"},
        {"file_size": -1},
        {"file_size": True},
        {"file_size": 1.5},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    for sink in (DeltaSink, ParquetSink):
        with pytest.raises(InvalidArgument):
            sink(str(tmp_path), **options)


def test_a_table_by_key_has_an_order_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(LaidOutByKey, match="sort_by"):
        DeltaSink(str(tmp_path), envelope="upsert", key="id", sort_by="n")


def test_a_table_by_key_is_not_parted_by_all_of_its_key(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path), envelope="upsert", key=["id", "shop"], partition_by=["shop", "id"])
    columns = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("n", pa.int64()), ("_epoch", pa.int64())])
    with pytest.raises(PartitionColumnUnfit, match="one row"):
        sink.check(columns)
    DeltaSink(str(tmp_path), envelope="upsert", key=["id", "shop"], partition_by="shop").check(columns)


def test_a_layout_is_said_in_the_stores_description() -> None:
    sink = DeltaSink("/lake/t", partition_by=["country", bucket(8, "id")], sort_by="n", file_size="1MB")
    assert sink.describe() == {
        "kind": "delta",
        "path": "/lake/t",
        "partition_by": ["country", "bucket(8, id)"],
        "sort_by": ["n"],
        "file_size": 1 << 20,
    }
    assert DeltaSink("/lake/t").describe() == {"kind": "delta", "path": "/lake/t"}
