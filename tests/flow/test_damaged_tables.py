"""Data files that are gone, cut short or something else: whoever reads the table is told so, and which one it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tidegauge as tg
from tidegauge.errors.command import RowsUnreadable
from tidegauge.errors.sinks import FilesChangedByOthers


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def overwrite(file: Path) -> None:
    file.write_bytes(b"x" * file.stat().st_size)


def damage_its_pages(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + b"\xff" * (len(whole) // 2) + whole[4 + len(whole) // 2 :])


def replace_by_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


HARMS = [cut_short, empty, overwrite, damage_its_pages, replace_by_a_folder]


@pytest.mark.parametrize(
    ("sink", "harm"),
    [(tg.DeltaSink, Path.unlink), *((sink, harm) for sink in (tg.DeltaSink, tg.ParquetSink) for harm in HARMS)],
)
def test_a_data_file_that_is_missing_or_damaged_is_said_in_our_words(
    tmp_path: Path, sink: Callable[[str], tg.DeltaSink | tg.ParquetSink], harm: Callable[[Path], None]
) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    rows = flow.source("rows", tg.GeneratorSource(rows=1000, columns="k long", shards=1))
    flow.sink("rows", rows, sink(f"{tmp_path}/lake"))
    flow.run("caught-up", engine="local")
    assert tg.read_arrow(flow, "rows").num_rows == 1000
    harm(next((tmp_path / "lake").rglob("*.parquet")))
    with pytest.raises(RowsUnreadable, match="TG-0616: the rows of output 'rows' cannot be read: "):
        tg.read_arrow(flow, "rows")


def test_a_data_file_that_is_missing_in_a_folder_is_seen_before_it_is_read(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    flow.sink(
        "rows", flow.source("rows", tg.GeneratorSource(9, columns="k long")), tg.ParquetSink(f"{tmp_path}/lake")
    )
    flow.run("caught-up", engine="local")
    next((tmp_path / "lake").rglob("*.parquet")).unlink()
    with pytest.raises(FilesChangedByOthers, match="TG-0421"):
        tg.read_arrow(flow, "rows")
