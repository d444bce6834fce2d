"""A folder that was damaged is named, and never taken for one that knows nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.databases import FolderDamaged
from tidegauge.sources.database.folder import LogBeginning, SnapshotPiece, SourceFolder

COLUMNS = {"orders": pa.schema([("id", pa.int64())])}
RECORD = LogBeginning("shop", "a/1", 0, 9, 1, {"orders": (SnapshotPiece("0.csv", 0, 4, 1, 0),)}, {"orders": "{}"})


def kept(path: Path) -> SourceFolder:
    folder = SourceFolder(str(path))
    folder.keep_columns(COLUMNS)
    folder.keep_stream(RECORD)
    folder.keep_told(5)
    return folder


def test_what_was_kept_comes_back_and_an_empty_folder_knows_nothing(tmp_path: Path) -> None:
    folder, empty = kept(tmp_path / "kept"), SourceFolder(str(tmp_path / "none"))
    assert (folder.columns(), folder.stream(), folder.told()) == (COLUMNS, RECORD, 5)
    assert (empty.columns(), empty.stream(), empty.told()) == (None, None, 0)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "null", '{"orders": 1}', '{"orders": {"oid": 1, "arrow": "?"}}']
)
def test_a_file_that_says_something_else_is_named(tmp_path: Path, text: str) -> None:
    folder = kept(tmp_path)
    for name in ("columns.json", "stream.json", "told.json"):
        tmp_path.joinpath(name).write_text(text)
    with pytest.raises(FolderDamaged, match=r"TG-0379: the file .*columns\.json cannot be understood"):
        folder.columns()
    with pytest.raises(FolderDamaged, match=r"stream\.json"):
        folder.stream()
    assert folder.told() == 0, "it tells errors apart, and no more"


@given(end=st.integers(0, 10_000), more=st.binary(max_size=4))
def test_a_file_that_lost_its_end_is_named_too(end: int, more: bytes) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder, file = kept(Path(path)), Path(path, "stream.json")
        whole = file.read_bytes()
        file.write_bytes(whole[: end % len(whole)] + more)
        try:
            found = folder.stream()
        except FolderDamaged:
            return
        assert found == RECORD, "what follows is blank"
