"""Deletion vectors are written as Delta has them, and never believed when they are damaged."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.sinks.altering import alter, append_to_log

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.sinks import DeletedRows
from tidegauge.sinks import vectors
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.vectors import VectorFile, deleted, live_rows, places_of, text_of

PLACES = st.lists(st.integers(0, 2**40) | st.integers(0, 70_000), unique=True, min_size=1, max_size=200).map(sorted)


def written(folder: str, *many: list[int], inline: int = 0) -> list[str]:
    with mock.patch.object(vectors, "_INLINE", inline):
        out = VectorFile(LocalFiles(folder))
        found = [out.add(np.array(places, np.int64)) for places in many]
        out.close()
    return [text_of(folder, one) for one in found]


@given(many=st.lists(PLACES, min_size=1, max_size=3), inline=st.sampled_from([0, 60, 1 << 20]))
def test_what_is_written_is_read(many: list[list[int]], inline: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert [deleted(text).tolist() for text in written(folder, *many, inline=inline)] == many


@given(dead=st.sets(st.integers(0, 30)), start=st.integers(0, 20), count=st.integers(0, 20))
def test_the_rows_that_are_left_are_the_others(dead: set[int], start: int, count: int) -> None:
    found = places_of(np.array(sorted(dead), np.int64), start, count)
    wanted = [at not in dead for at in range(start, start + count)]
    assert all(wanted) if found is None else found.to_pylist() == wanted


def test_rows_of_several_row_groups_are_counted_from_the_first(tmp_path: Path) -> None:
    rows = pa.table({"n": pa.array(range(10)), "_epoch": pa.array([0] * 10)})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=3)
    [text] = written(str(tmp_path), [0, 2, 3, 9])
    found = live_rows(str(tmp_path / "a.parquet"), rows.schema, {}, text)
    assert [n for batch in found for n in batch.column("n").to_pylist()] == [1, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("inline", [0, 512], ids=["file", "inline"])
def test_delta_rs_reads_what_is_written(tmp_path: Path, inline: int) -> None:
    path, dead = str(tmp_path), [0, 15, 999]
    write_deltalake(path, pa.table({"n": range(1000)}))
    alter(path, {"delta.enableDeletionVectors": "true"}, ["deletionVectors"])
    [line] = [x for x in Path(path, "_delta_log", f"{0:020d}.json").read_text().splitlines() if '"add":' in x]
    add = json.loads(line)["add"]
    [text] = written(path, dead, inline=inline)
    vector = vectors.descriptor_of(text)
    gone = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True}
    append_to_log(path, [{"remove": gone}, {"add": {**add, "deletionVector": vector}}])
    [kept] = pa.table(DeltaTable(path).deletion_vectors()).column("selection_vector").to_pylist()
    assert [at for at, one in enumerate(kept) if not one] == dead


def damaged(data: bytes) -> list[bytes]:
    """Cut short, with another bit, with another size, and empty."""
    return [data[:-5], data[:-7] + bytes([data[-7] ^ 1]) + data[-6:], data[:1] + b"\0\0\0\1" + data[5:], b""]


def test_a_vector_that_is_damaged_or_gone_is_an_error_and_not_fewer_rows(tmp_path: Path) -> None:
    [text] = written(str(tmp_path), [1, 5, 70_000])
    [file] = Path(tmp_path, vectors.FOLDER).iterdir()
    whole = file.read_bytes()
    for data in damaged(whole):
        file.write_bytes(data)
        with pytest.raises(DeletedRows, match=file.name):
            deleted(text)
    file.unlink()
    with pytest.raises(DeletedRows, match="not there"):
        deleted(text)


def test_a_descriptor_that_leads_out_of_the_table_or_says_nonsense_reads_nothing(tmp_path: Path) -> None:
    inline = vectors.described(np.array([1]))
    bad: list[dict[str, Any]] = [
        {**inline, "pathOrInlineDv": "'' no Z85"},
        {**inline, "cardinality": 7},
        {**inline, "pathOrInlineDv": "", "sizeInBytes": 0},
        {**inline, "storageType": "u", "pathOrInlineDv": "../x" + "HQ/F?Ye8-xS/i>S-*Zt["},
        {**inline, "storageType": "u", "pathOrInlineDv": "short"},
    ]
    for one in bad:
        with pytest.raises(TidegaugeError):
            deleted(text_of(str(tmp_path), one))
