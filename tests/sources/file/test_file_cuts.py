"""Where a bound range of a file is cut: at the end of a record, about where it was asked for, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.file.conftest import Driver

from tidegauge.remap.binding import Slice
from tidegauge.sources import Csv, FileSource, Json
from tidegauge.sources.file import planning

COLUMNS = "n long, text string"
FORMATS: dict[str, tuple[Any, str]] = {"json": (Json(COLUMNS), ""), "csv": (Csv(COLUMNS), "n,text\n")}


def record(kind: str, number: int, size: int) -> str:
    if kind == "json":
        return f'{{"n": {number}, "text": "{"x" * size}"}}\n'
    return f'{number},"{"x" * (size // 2)}\n""{"x" * (size // 2)}"\n'


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(FORMATS)),
    sizes=st.lists(st.sampled_from([0, 3, 40, 700]), min_size=1, max_size=30),
    window=st.sampled_from([1, 64, 1 << 16]),
    data=st.data(),
)
def test_parts_of_a_file_have_each_record_once_and_are_as_large_as_was_asked(
    kind: str, sizes: list[int], window: int, data: st.DataObject
) -> None:
    of, header = FORMATS[kind]
    records = [record(kind, number, size) for number, size in enumerate(sizes)]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "_WINDOW", window)
        Path(folder, "1.log").write_text(header + "".join(records))
        drive = Driver(FileSource(f"{folder}/*", format=of, metadata=True))
        [piece] = drive.tick()
        ends, at = {0}, 0
        for one in ([header] if header else []) + records:
            at += len(one)
            ends.add(at)
        found = list[Any]()
        while piece.lower < piece.upper:
            size = data.draw(st.integers(1, 900))
            if piece.size <= size:
                cut: int | None = piece.upper
            else:
                cut = drive.source.cut(piece, size, drive.bound)
                within = [end for end in ends if piece.lower < end <= piece.lower + size]
                after = [end for end in ends if piece.lower + size < end < piece.upper]
                assert cut == (max(within) if within else min(after, default=None))
            found += drive.read_slices([replace(piece, upper=cut or piece.upper)])
            piece = replace(piece, lower=cut or piece.upper)
        assert [row["n"] for row in found] == list(range(len(sizes)))


def test_a_file_that_is_gone_is_cut_nowhere_and_planning_says_so(landing: Path, drive: Any) -> None:
    (landing / "1.log").write_text('{"n": 1}\n' * 10)
    driver = drive(FileSource(str(landing / "*"), format=Json("n long")))
    [piece] = driver.tick()
    (landing / "1.log").unlink()
    driver.source.held.release(driver.bound.frontier)
    assert driver.source.cut(Slice(piece.source, 0, piece.partition, 0, piece.upper), 20, driver.bound) is None
