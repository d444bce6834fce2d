"""A table whose code was changed is repaired with the code that made each of its epochs, or as somebody asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet
import pytest

import tidegauge as tg
from tidegauge.errors.history import EpochsOfOtherCode
from tidegauge.errors.outputs import CodeChanged

pq: Final[Any] = pyarrow.parquet

LOCAL: Final = tg.LocalEngine(threads=0)
SINKS: Final = [tg.ParquetSink, tg.DeltaSink]

Make = Callable[[str], tg.Dataflow]


@pytest.fixture(params=SINKS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Three epochs of one row each, made by one code, and two more by another one."""

    def flow(least: str) -> tg.Dataflow:
        made = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.01)
        numbers = made.source("numbers", tg.FileSource(f"{tmp_path}/in/*.jsonl", format=tg.Json("id long")))
        made.sink("large", numbers.filter(f"id >= {least}"), request.param(f"{tmp_path}/lake"))
        return made

    (tmp_path / "in").mkdir()
    for number in range(3):
        add(tmp_path, number)
        flow("0").run("caught-up", engine=LOCAL)
    tg.from_here(flow("-1"), "large")
    for number in range(3, 5):
        add(tmp_path, number)
        flow("-1").run("caught-up", engine=LOCAL)
    return flow


def add(root: Path, number: int) -> None:
    with (root / "in" / "a.jsonl").open("a") as out:
        out.write(json.dumps({"id": number}) + "\n")


def lose(root: Path, epoch: int) -> None:
    """Remove what holds an epoch's one row."""
    files = [path for path in (root / "lake").rglob("*.parquet") if epoch in _epochs(path)]
    assert files
    for path in files:
        path.unlink()


def _epochs(path: Path) -> list[int]:
    found: list[int] = pq.read_table(path).column("_epoch").to_pylist()
    return found


def rows(flow: tg.Dataflow) -> list[tuple[int, int]]:
    found = tg.read_arrow(flow, "large")
    return sorted(zip(found["id"].to_pylist(), found["_epoch"].to_pylist(), strict=True))


def coded(flow: tg.Dataflow) -> tuple[int, ...]:
    return tg.outputs(flow)[0].coded_at


WHOLE: Final = [(n, n) for n in range(5)]


def test_epochs_of_an_earlier_code_are_refused_and_repaired_with_that(make: Make, tmp_path: Path) -> None:
    lose(tmp_path, 1)
    with pytest.raises(EpochsOfOtherCode, match=r"1.*step 1 \(filter\) is another"):
        tg.repair(make("-1"), "large", engine=LOCAL)
    done = tg.repair(make("0"), "large", engine=LOCAL)
    assert any(first <= 1 <= last for first, last in done.epochs)
    assert rows(make("-1")) == WHOLE
    assert coded(make("-1")) == (3,)


def test_epochs_of_the_present_code_are_repaired(make: Make, tmp_path: Path) -> None:
    lose(tmp_path, 4)
    with pytest.raises(EpochsOfOtherCode):
        tg.repair(make("0"), "large", engine=LOCAL)
    tg.repair(make("-1"), "large", engine=LOCAL)
    assert rows(make("-1")) == WHOLE


def test_what_is_written_anew_from_an_epoch_on_is_recorded_as_the_code_of_then(make: Make, tmp_path: Path) -> None:
    with pytest.raises(CodeChanged):
        make("2").run("caught-up", engine=LOCAL)
    tg.repair(make("2"), "large", engine=LOCAL, from_epoch=1)
    assert rows(make("2")) == [(0, 0), *WHOLE[2:]]
    assert coded(make("2")) == (1,)
    add(tmp_path, 5)
    make("2").run("caught-up", engine=LOCAL)
    assert rows(make("2")) == [(0, 0), *WHOLE[2:], (5, 5)]
    with pytest.raises(CodeChanged):
        make("-1").run("caught-up", engine=LOCAL)


def test_what_is_written_anew_by_the_code_that_it_had_adds_no_change(make: Make) -> None:
    tg.repair(make("-1"), "large", engine=LOCAL, from_epoch=4)
    assert coded(make("-1")) == (3,)
    tg.repair(make("0"), "large", engine=LOCAL, from_epoch=2)
    assert coded(make("0")) == ()
    assert rows(make("0")) == WHOLE


def test_epochs_before_those_that_are_asked_for_keep_their_code(make: Make, tmp_path: Path) -> None:
    lose(tmp_path, 0)
    with pytest.raises(EpochsOfOtherCode, match="the epochs 0 of"):
        tg.repair(make("-1"), "large", engine=LOCAL, from_epoch=3)
    tg.repair(make("-1"), "large", engine=LOCAL, from_epoch=0)
    assert rows(make("-1")) == WHOLE
    assert coded(make("-1")) == ()
