"""The source that the guide shows holds the laws of every source."""

from __future__ import annotations

import importlib
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT, blocks
from tests.sources.source_laws import LAWS, SourceBench, all_bound, cuts_change_nothing, memory_is_bounded

from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources import Source

CREATE = "create table numbers (place integer primary key autoincrement, n integer)"


@dataclass
class JournalBench:
    """A table to which numbers are appended."""

    path: Path
    source: Source
    secrets: Sequence[str] = ()
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    values: list[int | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.do(CREATE)

    def do(self, sql: str, rows: Sequence[tuple[Any, ...]] = ((),)) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.executemany(sql, rows) if rows[0] else db.execute(sql)

    def add(self, count: int) -> None:
        taken = range(len(self.values), len(self.values) + count)
        self.values.extend(taken)
        self.do("insert into numbers (n) values (?)", [(n,) for n in taken])

    def cuts(self, partition: str, bound: Bound) -> Sequence[int]:
        return range(bound.frontier[partition] + 1)

    def records(self, piece: Slice, bound: Bound) -> list[dict[str, Any]]:
        return [{"n": n} for n in self.values[piece.lower : piece.upper] if n is not None]

    def ranges(self, split: Any) -> list[tuple[str, int, int]]:
        return [(split.partition, split.lower, split.upper)]

    def spoil(self) -> bytes | None:
        self.values.append(None)
        self.do("insert into numbers (n) values (?)", [("many",)])
        return b"['many']"

    def shorten(self) -> bool:
        self.do("delete from numbers where place = 3")
        return True

    def recreate(self) -> None:
        self.path.unlink()
        self.do(CREATE)
        self.do("insert into numbers (n) values (?)", [(1_000 + n,) for n in range(len(self.values))])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JournalBench]:
    page = blocks(ROOT / "docs" / "how-to" / "write-a-source.md")
    [text] = [block.text for block in page if block.text.startswith("# journal.py\n")]
    (tmp_path / "journal.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("journal").JournalSource
    path = tmp_path / "numbers.db"
    yield JournalBench(path, made(str(path), "numbers", pa.schema([("n", pa.int64())]), epoch_rows=100_000))
    del sys.modules["journal"]


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_it_holds(law: Callable[[SourceBench], None], bench: JournalBench) -> None:
    law(bench)


@pytest.mark.parametrize("step", [1, 3, 7])
def test_cuts_change_nothing(step: int, bench: JournalBench) -> None:
    bench.add(20)
    cuts_change_nothing(bench, all_bound(bench), lambda positions: positions[::step])


def test_memory_is_bounded(bench: JournalBench) -> None:
    memory_is_bounded(bench, 50_000)
