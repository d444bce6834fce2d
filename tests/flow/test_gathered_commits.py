"""`commit_every`: epochs of a running flow share commits of one table, and the other tables do not notice."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.sinks.cadence import LONGEST, SECONDS, Cadence
from tidegauge.sinks.layout.layout import FileLayout


@dataclass
class Shop:
    """A folder of lines, a table of them that is committed at once, and one that gathers."""

    root: Path
    every: Any
    written: int = 0
    world: World = field(init=False)

    def __post_init__(self) -> None:
        (self.root / "in").mkdir(parents=True)
        self.world = World(self.root, lambda _world: self.flow())

    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=self.world.store, tick=0.3)
        lines = flow.source("lines", tg.FileSource(f"{self.root}/in/*.jsonl", format=tg.Json("n long"), settle=0))
        flow.sink("at_once", lines, tg.ParquetSink(str(self.root / "at_once")))
        flow.sink("gathered", lines, tg.DeltaSink(str(self.root / "gathered")), commit_every=self.every)
        return flow

    def write(self) -> None:
        with open(self.root / "in" / f"{self.written}.jsonl", "w") as file:
            file.write(f"{json.dumps({'n': self.written})}\n")
        self.written += 1

    def rows(self, output: str, as_of: int | None = None) -> list[tuple[int, int]]:
        found = tg.read_arrow(self.flow(), output, as_of=as_of).to_pylist()
        return sorted((row["n"], row["_epoch"]) for row in found)

    @property
    def commits(self) -> list[int]:
        """How many rows each commit of the gathered table added, the oldest first."""
        history = reversed(DeltaTable(str(self.root / "gathered")).history())
        return [int(one["operationMetrics"]["num_added_rows"]) for one in history if "operationMetrics" in one]

    def versions(self) -> int:
        return int(DeltaTable(str(self.root / "gathered")).version()) + 1


def uppers(run: Any) -> dict[str, int]:
    return {name: one.upper for name, one in run.runner.board.outputs.items()}


def minted(shop: Shop, run: Any, epochs: int) -> None:
    """Let this many epochs be bound, of a line each."""
    for _ in range(epochs):
        shop.write()
        before = run.runner.board.upper
        for _ in range(3):
            run.step()
            if run.runner.board.upper > before:
                break
        assert run.runner.board.upper == before + 1


def test_t38_epochs_share_a_commit_once_the_first_has_waited_long_enough(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "30s")
    run = shop.world.start()
    minted(shop, run, 5)
    run.step(1.0)
    board = run.runner.board
    assert (uppers(run), board.published, board.upper) == ({"at_once": 5, "gathered": 0}, 0, 5)
    run.step(30.0)
    run.step()
    assert (uppers(run), run.runner.board.published) == ({"at_once": 5, "gathered": 5}, 5)
    assert shop.versions() == 1
    assert shop.rows("gathered") == shop.rows("at_once") == [(n, n) for n in range(5)]
    assert [shop.rows("gathered", as_of=epoch) for epoch in range(5)] == [
        [(n, n) for n in range(epoch + 1)] for epoch in range(5)
    ]
    run.abandon()


@pytest.mark.parametrize("every", [3, [3, "1h"], ("50min", 3)])
def test_as_many_epochs_as_asked_for_share_a_commit(tmp_path: Path, every: Any) -> None:
    shop = Shop(tmp_path, every)
    run = shop.world.start()
    seen = []
    for _ in range(7):
        minted(shop, run, 1)
        run.step(1.0)
        seen.append(uppers(run)["gathered"])
    assert seen == [0, 0, 3, 3, 3, 6, 6]
    run.abandon()


def test_a_size_is_counted_in_staged_bytes(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "4kB")
    run = shop.world.start()
    minted(shop, run, 1)
    run.step(1.0)
    assert uppers(run)["gathered"] == 0
    minted(shop, run, 9)
    run.step(1.0)
    assert uppers(run)["gathered"] > 1
    assert shop.versions() < 5
    run.abandon()


def test_a_run_that_is_stopped_commits_what_it_has_gathered(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "1h")
    run = shop.world.start()
    minted(shop, run, 3)
    run.runner.stop()
    for _ in range(3):
        if why := run.runner.ended(None):
            break
        run.step(0.0)
    assert why == "stopped"
    assert shop.rows("gathered") == [(n, n) for n in range(3)]
    run.abandon()


def test_a_run_whose_sources_end_does_not_wait_for_more(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.01)
    rows = flow.source("rows", tg.GeneratorSource(10, columns="id long"))
    flow.sink("rows", rows, tg.ParquetSink(str(tmp_path / "rows")), commit_every="1h")
    with flow.start(engine="local") as run:
        assert run.wait(60).why == "sealed"
    assert tg.read_arrow(flow, "rows").num_rows == 10


def test_a_run_until_all_is_caught_up_waits_for_nothing(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    rows = flow.source("rows", tg.FileSource(str(tmp_path / "*.jsonl"), format=tg.Json("n long"), settle=0))
    flow.sink("rows", rows, tg.ParquetSink(str(tmp_path / "rows")), commit_every=["1h", "256MiB"])
    assert flow.run(until="caught-up", engine="local").why == "caught up"
    assert tg.read_arrow(flow, "rows").num_rows == 1


def test_gathering_goes_on_past_the_bounds_of_what_may_wait_otherwise(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "5min")
    run = shop.world.start()
    minted(shop, run, 60)
    run.step(60.0)
    minted(shop, run, 1)
    assert uppers(run) == {"at_once": 61, "gathered": 0}
    for _ in range(4):
        run.step(90.0)
    assert uppers(run)["gathered"] == 61
    assert shop.versions() == 1
    run.abandon()


@settings(max_examples=15)
@given(
    every=st.sampled_from([2, 5, "1s", "10s", "3kB"]),
    moves=st.lists(st.sampled_from(["write", "wait", "crash", "stop"]), min_size=3, max_size=14),
)
def test_whatever_happens_the_gathered_table_becomes_that_which_is_committed_at_once(
    tmp_path_factory: pytest.TempPathFactory, every: Any, moves: list[str]
) -> None:
    shop = Shop(tmp_path_factory.mktemp("shop"), every)
    run = shop.world.start()
    for move in moves:
        if move == "write":
            shop.write()
            run.step()
        elif move == "wait":
            run.step(4.0)
        else:
            if move == "stop":
                run.runner.stop()
                run.step(0.0)
            shop.world.clock.seconds += 100.0
            run.abandon()
            run = shop.world.start()
    shop.write()
    run.catch_up()
    assert shop.rows("gathered") == shop.rows("at_once")
    assert [n for n, _epoch in shop.rows("gathered")] == list(range(shop.written))
    run.abandon()


@pytest.mark.parametrize("point", ["before commit output", "after commit output"])
def test_a_driver_that_dies_at_a_gathered_commit_leaves_all_of_it_or_nothing(tmp_path: Path, point: str) -> None:
    shop = Shop(tmp_path, 4)
    run = shop.world.start()
    minted(shop, run, 3)
    shop.world.strike = point
    with pytest.raises(Crash):
        minted(shop, run, 2)
    run.abandon()
    shop.world.clock.seconds += 100.0
    run = shop.world.start()
    run.catch_up()
    assert shop.rows("gathered") == shop.rows("at_once") == [(n, n) for n in range(shop.written)]
    run.abandon()


@pytest.mark.parametrize(
    "every",
    [
        0,
        -1,
        True,
        1001,
        2.5,
        "",
        "s",
        "10",
        "10 parsecs",
        "0s",
        "2h",
        "1GiB",
        "0MB",
        "5m",
        [],
        ["1s", "2s"],
        ["1s", None],
    ],
)
def test_what_is_no_cadence_is_refused(every: Any) -> None:
    with pytest.raises(InvalidArgument, match="commit_every"):
        Cadence.of(every)


sizes, counts, ages = st.integers(0, 1 << 30), st.integers(1, 2000), st.floats(0, 1e4)
cadences = st.builds(
    Cadence,
    st.floats(0.001, LONGEST),
    bytes=st.none() | st.integers(1, 1 << 28),
    epochs=st.none() | st.integers(1, 1000),
)


@given(cadences, sizes, counts, ages, st.integers(0, 1000), st.floats(0, 100))
def test_more_that_waits_or_longer_is_never_committed_later(
    cadence: Cadence, size: int, epochs: int, age: float, more: int, longer: float
) -> None:
    rest = cadence.rest(bytes=size, epochs=epochs, age=age)
    assert 0.0 <= rest <= cadence.seconds
    assert cadence.rest(bytes=size + more, epochs=epochs + more, age=age + longer) <= rest
    assert cadence.rest(bytes=size, epochs=epochs, age=age + rest) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("text", ["64MB", "64mb", "65536kB", "64 MiB", "0.0625GB"])
def test_a_size_is_the_same_in_every_option(text: str) -> None:
    assert Cadence.of(text).bytes == FileLayout.of("DeltaSink", None, None, text).file_bytes == 64 << 20


@pytest.mark.parametrize(
    ("every", "waits", "rest"),
    [
        ("30s", {"bytes": 0, "epochs": 0, "age": 0.0}, 30.0),
        ("30s", {"bytes": 1, "epochs": 5, "age": 7.0}, 23.0),
        ("30s", {"bytes": 1, "epochs": 5, "age": 30.0}, 0.0),
        ("30s", {"bytes": 1, "epochs": 1000, "age": 7.0}, 0.0),  # a commit takes no more
        (["30s", 6], {"bytes": 1, "epochs": 5, "age": 7.0}, 23.0),
        (["30s", 6], {"bytes": 1, "epochs": 6, "age": 7.0}, 0.0),
        (["30s", "4kB"], {"bytes": 4095, "epochs": 6, "age": 7.0}, 23.0),
        (["30s", "4kB"], {"bytes": 4096, "epochs": 6, "age": 7.0}, 0.0),
    ],
)
def test_t39_when_what_waits_is_committed(every: Any, waits: Any, rest: float) -> None:
    assert Cadence.of(every).rest(**waits) == rest


def test_without_a_time_nothing_waits_longer_than_a_minute() -> None:
    assert Cadence.of("64MB").seconds == Cadence.of(10).seconds == SECONDS == 60.0
