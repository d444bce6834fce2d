"""Files that are loaded once: all of them in one epoch of an output, or nothing of them anywhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.loads import (
    FileNotLoadable,
    LoadedAlready,
    LoadsNotTaken,
    NoSuchColumns,
    NothingToLoad,
)


def shop(root: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db")
    history = flow.source("history", tg.BatchSource(root / "loads", columns="id long, name string"))
    flow.sink("orders", history, tg.ParquetSink(str(root / "lake" / "orders")))
    numbers = flow.source("numbers", tg.GeneratorSource(1, columns="n long"))
    flow.sink("numbers", numbers, tg.ParquetSink(str(root / "lake" / "numbers")))
    return flow


def write(root: Path, *numbers: int) -> None:
    (root / "in").mkdir(exist_ok=True)
    for n in numbers:
        pq.write_table(pa.table({"id": [n, n + 10], "name": ["a", "b"]}), root / "in" / f"{n}.parquet")


def rows(flow: tg.Dataflow) -> list[tuple[int, int]]:
    """Each row's number and epoch."""
    flow.run("caught-up", engine="local")
    return sorted((row["id"], row["_epoch"]) for row in tg.read_arrow(flow, "orders").to_pylist())


def staged(root: Path) -> list[str]:
    """What is left in the source's folder."""
    return sorted(path.name for path in (root / "loads").rglob("*") if path.is_file())


def test_t69_of_three_files_with_a_corrupt_third_nothing_is_loaded_and_nothing_is_left(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    third = tmp_path / "in" / "3.parquet"
    good = third.read_bytes()
    flow = shop(tmp_path)
    middle = len(good) // 3
    for corrupt in (good[:-9], good[:4] + bytes(middle) + good[4 + middle :]):
        third.write_bytes(corrupt)
        with pytest.raises(FileNotLoadable, match=r"of the 2 other files: .*3\.parquet"):
            tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
        assert staged(tmp_path) == ["lock"]
    assert rows(flow) == []
    third.write_bytes(good)
    done = tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert (done.files, done.rows, done.source) == (3, 6, "history")
    found = rows(flow)
    assert [n for n, _ in found] == [1, 2, 3, 11, 12, 13]
    assert len({epoch for _, epoch in found}) == 1


def test_what_was_loaded_is_on_the_timeline_and_is_not_loaded_again(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    flow = shop(tmp_path)
    done = tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    with pytest.raises(LoadedAlready, match=f"2 of the 2 files have been loaded by {done.name}"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    assert len(rows(flow)) == 4
    [piece] = [one for one in tg.explain(flow, 0).slices if one.source == "history"]
    assert (piece.partition, piece.detail["inputs"]) == (done.name, 2)
    assert piece.detail["path"] == f"{tmp_path}/in/*.parquet"
    write(tmp_path, 3)
    with pytest.raises(LoadedAlready, match="2 of the 3 files"):
        tg.load(flow, "orders", tmp_path / "in" / "*.parquet")
    tg.load(flow, "orders", tmp_path / "in" / "3.parquet")
    assert [n for n, _ in rows(flow)] == [1, 2, 3, 11, 12, 13]


def test_a_last_line_without_an_end_is_a_row_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}')
    (tmp_path / "b.jsonl").write_text('{"id": 3, "name": "a"}\n{"id": "x"}\n')
    with pytest.raises(FileNotLoadable, match=r"b\.jsonl cannot be read: the record at 23"):
        tg.load(flow, "orders", tmp_path / "*.jsonl")
    tg.load(flow, "orders", tmp_path / "a.jsonl")
    assert [n for n, _ in rows(flow)] == [1, 2]


def test_what_cannot_be_loaded_is_refused_by_name(tmp_path: Path) -> None:
    flow = shop(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"number": 1}\n')
    with pytest.raises(NoSuchColumns, match="1 rows with no value in any of the columns id, name"):
        tg.load(flow, "orders", tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_text("number,title\n1,a\n")
    with pytest.raises(FileNotLoadable, match="header has none of the columns"):
        tg.load(flow, "orders", tmp_path / "a.csv")
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "text.parquet")
    with pytest.raises(FileNotLoadable, match=r"text\.parquet"):
        tg.load(flow, "orders", tmp_path / "text.parquet")
    with pytest.raises(NothingToLoad, match="no file matches"):
        tg.load(flow, "orders", tmp_path / "*.parquets", format=tg.Parquet())
    with pytest.raises(LoadsNotTaken, match="none of its sources does, of numbers"):
        tg.load(flow, "numbers", tmp_path / "a.csv")
    with pytest.raises(InvalidArgument, match="format"):
        tg.load(flow, "orders", tmp_path / "a.xlsx")
    with pytest.raises(InvalidArgument, match="all_or_nothing"):
        tg.load(flow, "orders", tmp_path / "a.csv", all_or_nothing=False)
