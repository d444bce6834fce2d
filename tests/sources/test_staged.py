"""Rows that a source has staged, where the file is gone: one that was removed, or all of them with their disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegauge.errors.polls import PollDamaged
from tidegauge.errors.sources import FolderAway, RangeOvertaken
from tidegauge.sources.polls.staged import PollSplit
from tidegauge.sources.staged import staged_rows
from tidegauge.sources.staging import write_rows


def split(folder: Path) -> PollSplit:
    path, schema = str(folder / "rows.parquet"), pa.schema([("id", pa.int64())])
    return PollSplit(epoch=0, partition="polls", lower=0, upper=1, weight=100, path=path, rows=1, schema=schema)


def test_a_file_that_is_away_with_its_folder_is_waited_for_however_long(tmp_path: Path) -> None:
    with pytest.raises(FolderAway, match="is not there") as raised:
        list(staged_rows(split(tmp_path / "disk"), tmp_path / "disk", damaged=PollDamaged))
    assert raised.value.patient


def test_a_file_that_was_removed_from_its_folder_is_looked_for_again(tmp_path: Path) -> None:
    with pytest.raises(RangeOvertaken):
        list(staged_rows(split(tmp_path), tmp_path, damaged=PollDamaged))


def test_a_staged_file_has_dictionaries_where_values_repeat_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = pa.table({"id": range(9000), "country": ["SE", "NO", None] * 3000, "tags": [["a"], []] * 4500})
    for names, encoded in ((["id", "country"], {"country"}), (["id", "tags"], {"id", "tags"})):
        some = rows.select(names)
        write_rows(tmp_path / "rows.parquet", some.schema, (some.slice(at, 4500) for at in (0, 4500)))
        meta = pq.read_metadata(tmp_path / "rows.parquet").row_group(1)
        columns = [meta.column(number) for number in range(meta.num_columns)]
        assert {one.path_in_schema.partition(".")[0] for one in columns if one.has_dictionary_page} == encoded
        assert pq.read_table(tmp_path / "rows.parquet").equals(some)
    pieces = pa.concat_tables([rows.slice(0, 0), rows.slice(0, 5), rows.slice(0, 0)]).select(["id", "country"])
    write_rows(tmp_path / "pieces.parquet", pieces.schema, [pieces])
    assert pq.read_table(tmp_path / "pieces.parquet").equals(pieces)
    odd = pa.table({"n": pa.nulls(3), "v": pa.array(["a"] * 3, pa.string_view())})
    write_rows(tmp_path / "odd.parquet", odd.schema, [odd])
    assert pq.read_table(tmp_path / "odd.parquet").column("v").to_pylist() == ["a"] * 3
    write_rows(tmp_path / "none.parquet", rows.schema, [])
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0
