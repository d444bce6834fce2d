"""Slices of a file that follow each other are opened, checked and read together, as each would be by itself."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.sources.file.conftest import Driver

import tidegauge as tg
from tidegauge.errors.sources import FileOvertaken, FileRewritten
from tidegauge.job.decoding import by_epoch, decoded
from tidegauge.job.perform import plan
from tidegauge.job.plan import SourceRead
from tidegauge.job.report import Report
from tidegauge.remap.binding import Slice
from tidegauge.remap.round import Failure
from tidegauge.sources.file import identity
from tidegauge.sources.file.disk import LocalDisk
from tidegauge.sources.file.reading import FileRun
from tidegauge.sources.formats.protocol import Format
from tidegauge.sources.protocol import BadRecord

FORMATS: dict[str, tuple[Format, Callable[[int], str]]] = {
    "json": (
        tg.Json("n long, text string"),
        lambda n: f'{{"n": {n}, "text": "{"x" * (n % 7)}"}}\n' if n % 5 else "no\n",
    ),
    "csv": (tg.Csv("n long, text string"), lambda n: f'{n},"a\n""{n}"""\n' if n % 5 else f"{n},a,b,c\n"),
    "good": (tg.Json("n long"), lambda n: f'{{"n": {n}}}\n'),
}


class Grown:
    """A file that grew by some lines before each epoch, and the source that has bound them."""

    def __init__(self, folder: Path, kind: str, lines: Sequence[int], **options: Any) -> None:
        self.format, line = FORMATS[kind]
        self.path = folder / f"a.{kind}"
        self.path.write_text("n,text\n" if kind == "csv" else "")
        self.source = tg.FileSource(str(self.path), format=self.format, **options)
        self.driver = Driver(self.source)
        number = 0
        for count in lines:
            with self.path.open("a") as file:
                file.write("".join(line(n) for n in range(number, number + count)))
            number += count
            self.driver.tick()

    @property
    def slices(self) -> list[Slice]:
        return [piece for epoch in self.driver.epochs for piece in epoch]

    @property
    def splits(self) -> list[Any]:
        return self.source.plan(self.slices, self.driver.bound)

    def read(self, *, collect: bool = False) -> SourceRead:
        schema = self.driver.bound.schema
        assert schema is not None
        return SourceRead("s", self.source, schema, tuple(self.splits), collect)


LONG = [600, *[2] * 9]
"""Lines of a file whose fingerprint covers only the first epoch."""


def rows_of(source: tg.FileSource, splits: Any) -> tuple[list[tuple[int, Any]], list[BadRecord]]:
    bad: list[BadRecord] = []
    found: list[tuple[int, Any]] = []
    for split in splits:
        for batch in source.read(split, bad.append):
            pieces = by_epoch(batch) if isinstance(split, FileRun) else [(split.epoch, batch)]
            for epoch, rows in pieces:
                assert rows.schema.equals(split.schema)
                found += [(epoch, row) for row in rows.to_pylist()]
    return found, bad


@deep(100)
@given(
    kind=st.sampled_from(sorted(FORMATS)),
    lines=st.lists(st.integers(1, 4), min_size=1, max_size=9),
    size=st.sampled_from([1, 30, 90, 1 << 20]),
    metadata=st.booleans(),
    left_out=st.integers(0, 9),
)
def test_splits_together_have_the_rows_that_each_has_by_itself(
    kind: str, lines: list[int], size: int, metadata: bool, left_out: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        grown = Grown(Path(folder), kind, lines, split_bytes=size, metadata=metadata)
        splits = [split for split in grown.splits if split.epoch != left_out]
        joined = list(grown.source.joined(splits))
        assert [part for split in joined for part in getattr(split, "parts", (split,))] == splits
        assert rows_of(grown.source, joined) == rows_of(grown.source, splits)
        assert all(not isinstance(split, FileRun) or split.weight <= size for split in joined)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count how often a file is opened, and how often its fingerprint is taken."""
    asked: Counter[str] = Counter()
    opened, taken = LocalDisk.open, identity.fingerprint

    def open_(disk: LocalDisk, path: str) -> Any:
        asked["open"] += 1
        return opened(disk, path)

    def fingerprint(*args: Any, **options: Any) -> str:
        asked["fingerprint"] += 1
        return taken(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalDisk, "open", open_)
        patch.setattr(identity, "fingerprint", fingerprint)
        yield asked


def test_f12_many_small_slices_of_a_file_are_opened_once_to_be_planned_and_once_to_be_read(tmp_path: Path) -> None:
    grown = Grown(tmp_path, "good", [1] * 100)
    with counted() as planned:
        splits = grown.splits
    assert len(splits) == 100
    assert planned == {"open": 1, "fingerprint": 1}
    read, report = replace(grown.read(), splits=tuple(splits)), Report()
    with counted() as asked:
        epochs = [epoch for _channel, epoch, _rows in decoded(read, report)]
    assert epochs == list(range(100))
    assert report.bytes_read == {"s": grown.path.stat().st_size}
    assert report.failures == []
    assert asked == {"open": 1, "fingerprint": 2}  # before the first row, and after the last


@pytest.mark.parametrize("how", ["its first bytes", "its end"])
def test_a_file_that_changes_while_a_run_is_read_is_found_after_the_last_row(tmp_path: Path, how: str) -> None:
    grown = Grown(tmp_path, "good", LONG)
    [run] = grown.source.joined(grown.splits)
    batches = grown.source.read(run, print)
    next(batches)
    if how == "its end":
        os.truncate(grown.path, grown.path.stat().st_size - 1)
    else:
        with grown.path.open("r+b") as file:
            file.write(b"{ ")
    with pytest.raises(FileOvertaken):
        list(batches)


def cut_in_the_sixth(grown: Grown) -> int:
    piece = grown.slices[6]
    os.truncate(grown.path, piece.upper - 1)
    return piece.epoch


def test_of_a_file_that_was_cut_the_first_epoch_that_lacks_bytes_is_told(tmp_path: Path) -> None:
    grown = Grown(tmp_path, "good", LONG)
    splits = grown.splits
    epoch = cut_in_the_sixth(grown)
    planned = plan("s", grown.source, grown.slices, grown.driver.bound)
    assert isinstance(planned, Failure)
    assert (planned.epoch, type(planned.error)) == (epoch, FileRewritten)
    report = Report()
    list(decoded(replace(grown_read(grown, splits)), report))
    [failure] = report.failures
    assert (failure.epoch, type(failure.error)) == (epoch, FileOvertaken)


def grown_read(grown: Grown, splits: Sequence[Any]) -> SourceRead:
    schema = grown.driver.bound.schema
    assert schema is not None
    return SourceRead("s", grown.source, schema, tuple(splits), collect=False)


def test_of_a_file_that_was_cut_only_the_epochs_that_lack_bytes_are_given_up(tmp_path: Path) -> None:
    grown = Grown(tmp_path, "good", LONG, on_data_loss="gap")
    assert list(grown.source.lost(grown.slices, grown.driver.bound)) == []
    cut_in_the_sixth(grown)
    assert list(grown.source.lost(grown.slices, grown.driver.bound)) == grown.slices[6:]


def test_a_bad_record_fails_its_own_epoch_and_not_the_first_of_the_run(tmp_path: Path) -> None:
    grown = Grown(tmp_path, "json", [1] * 9, on_data_loss="gap")
    splits, report = grown.splits[1:], Report()  # the lines 0 and 5 are bad
    list(decoded(grown_read(grown, splits), report))
    [failure] = report.failures
    alone = Report()
    list(decoded(grown_read(grown, [grown.splits[5]]), alone))
    assert (failure.epoch, failure.error.encode()) == (5, alone.failures[0].error.encode())


def test_bad_records_that_are_collected_are_of_their_own_epochs(tmp_path: Path) -> None:
    grown = Grown(tmp_path, "json", [1] * 11)
    report = Report()
    read = grown.read(collect=True)
    found = [(channel, epoch) for channel, epoch, _rows in decoded(read, report)]
    assert [epoch for channel, epoch in found if channel == "errors"] == [0, 5, 10]
    assert report.failures == []


def test_an_error_that_no_part_has_by_itself_is_of_the_first_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = Grown(tmp_path, "good", [1] * 9)
    plain = tg.FileSource.read

    def read(source: tg.FileSource, split: Any, bad: Any) -> Iterator[pa.RecordBatch]:
        yield from plain(source, split, bad)
        if isinstance(split, FileRun):
            raise FileOvertaken(path="a", detail="it was another file for a moment")

    monkeypatch.setattr(tg.FileSource, "read", read)
    report = Report()
    list(decoded(grown.read(), report))
    [failure] = report.failures
    assert (failure.epoch, type(failure.error)) == (0, FileOvertaken)


def test_a_line_that_ended_without_its_newline_is_not_joined_with_what_came_behind_it(tmp_path: Path) -> None:
    grown = Grown(tmp_path, "good", [3] * 3)
    first, second, third = grown.splits
    middle = second.lower + 4  # as where a log was deleted in the midst of a line, and came back longer
    cut = [first, replace(second, upper=middle), replace(second, lower=middle, epoch=7), replace(third, epoch=8)]
    [run] = grown.source.joined(cut)
    rows, bad = rows_of(grown.source, [run])
    assert (rows, bad) == rows_of(grown.source, cut)
    assert [record.raw for record in bad] == [b'{"n"', b": 3}"]


@pytest.mark.parametrize("kind", ["gz", "parquet"])
def test_files_that_are_read_whole_and_other_files_stay_by_themselves(tmp_path: Path, kind: str) -> None:
    import gzip

    import pyarrow.parquet as pq

    for n in range(2):
        if kind == "gz":
            (tmp_path / f"{n}.gz").write_bytes(gzip.compress(b'{"n": 1}\n' * 100))
        else:
            pq.write_table(pa.table({"n": list(range(100))}), tmp_path / f"{n}.parquet", row_group_size=10)
    lines_or_columns = tg.Json("n long") if kind == "gz" else tg.Parquet()
    driver = Driver(tg.FileSource(f"{tmp_path}/*", format=lines_or_columns, split_bytes=100))
    slices = driver.tick()
    splits: list[Any] = driver.source.plan(slices, driver.bound)
    assert list(driver.source.joined(splits)) == splits


def test_slices_in_any_order_are_planned_in_that_order(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(4)))
    driver = Driver(tg.FileSource(f"{tmp_path}/*", format=tg.Json("n long"), max_bytes_per_epoch=4, split_bytes=1))
    while driver.tick():
        pass
    slices = [piece for epoch in driver.epochs for piece in epoch]
    random.Random(5).shuffle(slices)
    splits: list[Any] = driver.source.plan(slices, driver.bound)
    order = dict.fromkeys((split.epoch, split.partition) for split in splits)
    assert list(order) == [(piece.epoch, piece.partition) for piece in slices]
