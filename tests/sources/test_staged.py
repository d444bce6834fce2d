"""Rows that a source has staged, where the file is gone: one that was removed, or all of them with their disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidegauge.errors.polls import PollDamaged
from tidegauge.errors.sources import FolderAway, RangeOvertaken
from tidegauge.sources.polls.staged import PollSplit
from tidegauge.sources.staged import staged_rows


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
