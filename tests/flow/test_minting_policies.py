"""When a flow mints: every so often, every so much, both, or on demand; and what no policy changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.flow.by_hand import Run
from tests.flow.minting import START, Asked, Wall, at, begin, flow, minted, rows, sizes

import tidegauge as tg
from tidegauge.remap.binding import Observation
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.policy import Policy

EACH = pytest.mark.parametrize(
    "policy",
    [
        tg.Every(1),
        tg.Every(records=20, bytes=20),
        tg.Every(1, records=20, bytes=20),
        tg.Every(1, records=10**9, bytes=10**9),
        tg.Manual(),
    ],
    ids=["time", "size", "what comes first", "time before size", "on demand"],
)


@contextmanager
def life(run: Run) -> Iterator[Run]:
    try:
        yield run
    finally:
        run.abandon()


def lines(path: Path, *numbers: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"n": n}) + "\n" for n in numbers)


def files(root: Path, **how: int) -> tg.FileSource:
    return tg.FileSource(str(root / "in" / "*.jsonl"), format=tg.Json("n long"), **how)  # type: ignore[arg-type]


def tick(run: Run) -> int | None:
    """Ask for a tick, and step until it is over. The clock does not have to move for it."""
    asked = run.runner.requests.ask()
    for _ in range(3):
        run.step(0.0)
    return asked.result(timeout=0)


def test_by_time_epochs_are_at_the_multiples_of_the_interval(tmp_path: Path) -> None:
    with life(begin(tmp_path, 10, rows=rows())) as run:
        at(run, 25)
        assert minted(run) == [0.5, 10, 20]
        assert [epoch["rows"] for epoch in sizes(run)] == [6, 95, 100]


def test_t23_ticks_that_were_slept_through_are_not_made_up_for(tmp_path: Path) -> None:
    with life(begin(tmp_path, 10, rows=rows())) as run:
        at(run, 3)
        run.step(36)
        at(run, 45)
        assert minted(run) == [0.5, 39, 40]


def test_by_size_an_epoch_is_minted_when_so_many_records_wait(tmp_path: Path) -> None:
    source = Asked(rows())
    with life(begin(tmp_path, tg.Every(records=25), rows=source)) as run:
        at(run, 8)
        assert minted(run) == [2.5, 5, 7.5]
        assert [epoch["rows"] for epoch in sizes(run)] == [26, 25, 25]
        assert len(source.times) == 16, "it is looked at every half second"


def test_by_size_records_of_all_sources_count_together(tmp_path: Path) -> None:
    with life(begin(tmp_path, tg.Every(records=50, look=0.1), a=rows(), b=rows(rate=40))) as run:
        at(run, 2, every=0.1)
        assert [sum(epoch.values()) for epoch in sizes(run)] == [52, 50]
        assert all(set(epoch) == {"a", "b"} for epoch in sizes(run))


def test_by_both_what_comes_first_counts(tmp_path: Path) -> None:
    with life(begin(tmp_path, tg.Every(10, records=25), rows=rows())) as run:
        at(run, 13)
        assert minted(run) == [0.5, 3, 5.5, 8, 10, 12.5]
        assert [epoch["rows"] for epoch in sizes(run)] == [6, 25, 25, 25, 20, 25]


@pytest.mark.parametrize("policy", [tg.Every(10), tg.Every(records=30)], ids=["time", "size"])
def test_what_is_more_than_an_epoch_takes_follows_at_once_and_to_its_last_record(
    policy: Policy, tmp_path: Path
) -> None:
    with life(begin(tmp_path, policy, rows=rows(rate=70, max_records_per_epoch=10))) as run:
        run.step(0.5)
        for _ in range(3):
            run.step(0.0)
        assert [epoch["rows"] for epoch in sizes(run)] == [10, 10, 10, 6]


def test_on_demand_nothing_is_asked_and_nothing_minted_until_somebody_says_so(tmp_path: Path) -> None:
    source = Asked(rows())
    with life(begin(tmp_path, tg.Manual(), rows=source)) as run:
        at(run, 60)
        assert source.times == []
        assert tick(run) == 0
        assert tick(run) is None, "there is nothing new in the same instant"
        at(run, 61)
        assert tick(run) == 1
        assert [epoch["rows"] for epoch in sizes(run)] == [601, 10]
        assert len(source.times) == 3


def test_when_all_sources_have_ended_a_tick_has_nothing_to_bind(tmp_path: Path) -> None:
    with life(begin(tmp_path, tg.Manual(), rows=rows(3, rate=None))) as run:
        assert [tick(run), tick(run)] == [0, None]


@pytest.mark.parametrize("policy", [tg.Every(10), tg.Every(records=10**9)], ids=["time", "size"])
def test_a_tick_on_demand_is_one_more_under_any_policy(policy: Policy, tmp_path: Path) -> None:
    with life(begin(tmp_path, policy, rows=rows())) as run:
        at(run, 3)
        before = len(tg.epochs(run.flow))
        assert tick(run) == before
        at(run, 12)
        assert minted(run) == ([0.5, 3, 10] if policy == tg.Every(10) else [3])


def test_ticks_that_are_asked_for_together_are_one_and_the_one_under_way_is_none_of_them(tmp_path: Path) -> None:
    with life(begin(tmp_path, tg.Manual(), rows=rows())) as run:
        run.world.lag = 2
        run.step(1)
        first, second = run.runner.requests.ask(), run.runner.requests.ask()
        for _ in range(3):  # the sources are asked
            run.runner.step()
        late = run.runner.requests.ask()
        run.step(1)
        assert (first.result(timeout=0), second.result(timeout=0), late.result(timeout=0)) == (0, 0, 1)


@EACH
def test_no_epoch_takes_more_of_a_source_than_its_limit(policy: Policy, tmp_path: Path) -> None:
    for number in range(3):
        lines(tmp_path / "in" / f"{number}.jsonl", *range(10, 17))
    sources: dict[str, Any] = {
        "rows": rows(70, rate=None, shards=3, max_records_per_epoch=30),
        "endless": rows(rate=None, max_records_per_epoch=7),
        "files": files(tmp_path, max_bytes_per_epoch=100),
    }
    with life(begin(tmp_path, policy, **sources)) as run:
        while run.runner.board.upper < 4:
            if policy == tg.Manual():
                assert tick(run) is not None
            run.step(0.5)
        taken = sizes(run)
    assert max(epoch.get("rows", 0) for epoch in taken) == 30
    assert max(epoch.get("endless", 0) for epoch in taken) == 7
    assert 90 < max(epoch.get("files", 0) for epoch in taken) <= 100
    assert sum(epoch.get("rows", 0) for epoch in taken) == 70
    assert sum(epoch.get("files", 0) for epoch in taken) == 21 * len('{"n": 10}\n')


@EACH
def test_t15_looks_that_find_nothing_mint_nothing(policy: Policy, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "a.jsonl", *range(10, 30))
    with life(begin(tmp_path, policy, files=files(tmp_path))) as run:
        run.step()
        tick(run)
        for _ in range(10):
            run.step(1)
        assert tick(run) is None
        assert len(tg.epochs(run.flow)) == 1


@EACH
def test_t13_a_source_that_goes_back_keeps_its_frontier_and_gets_another_chance(
    policy: Policy, tmp_path: Path
) -> None:
    source = Asked(rows(rate=200))
    with life(begin(tmp_path, policy, back=source, other=rows(rate=200))) as run:
        run.step(1)
        tick(run)
        bound = run.runner.board.timeline.tables["back"].frontier
        source.instead = lambda: Observation(at=START, upper=Frontier({"shard-0": 3}), end=Frontier({"shard-0": 3}))
        run.step(1)
        assert tick(run) is not None or policy != tg.Manual()
        assert run.runner.board.timeline.tables["back"].frontier == bound
        assert run.runner.board.timeline.tables["other"].frontier != bound
        source.show()
        run.step(1)
        tick(run)
        assert bound.less_equal(run.runner.board.timeline.tables["back"].frontier)
        assert run.runner.board.timeline.tables["back"].frontier != bound


@pytest.mark.parametrize(
    "policy", [tg.Every(0.05), tg.Every(records=10**9, look=0.05), tg.Every(0.05, records=20, look=0.01)], ids=str
)
def test_t16_the_end_of_its_sources_is_the_end_of_a_run_and_nothing_is_left_behind(
    policy: Policy, tmp_path: Path
) -> None:
    made = flow(tmp_path, policy, a=rows(40, rate=1e6), b=rows(3, rate=1e6))
    outcome = made.run(engine=tg.LocalEngine(threads=0))
    assert outcome.why == "sealed"
    assert (tg.read_arrow(made, "a").num_rows, tg.read_arrow(made, "b").num_rows) == (40, 3)


@EACH
def test_a_run_until_caught_up_takes_all_there_is(policy: Policy, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "a.jsonl", 1)
    made = flow(tmp_path, policy, files=files(tmp_path))
    assert made.run("caught-up", engine=tg.LocalEngine(threads=0)).why == "caught up"
    lines(tmp_path / "in" / "a.jsonl", 2)
    assert made.run("caught-up", engine=tg.LocalEngine(threads=0)).published == 2
    assert sorted(tg.read_arrow(made, "files").column("n").to_pylist()) == [1, 2]


def test_what_was_not_bound_when_a_driver_ended_is_there_for_the_next_one(tmp_path: Path) -> None:
    lines(tmp_path / "in" / "a.jsonl", 1, 2)
    with life(begin(tmp_path, tg.Every(bytes=10**9), files=files(tmp_path))) as run:
        at(run, 5)
        assert tg.epochs(run.flow) == []
        assert run.runner.board.sources["files"].lag == 18
    made = flow(tmp_path, tg.Every(bytes=18), files=files(tmp_path))
    made.run("caught-up", engine=tg.LocalEngine(threads=0))
    assert tg.read_arrow(made, "files").num_rows == 2


@pytest.mark.parametrize("put", [-3600, -7, 7, 3600])
def test_a_clock_that_is_put_neither_stops_the_ticks_nor_turns_their_times_around(put: int, tmp_path: Path) -> None:
    wall = Wall()
    with life(begin(tmp_path, 10, clock=wall, files=files(tmp_path))) as run:
        for number in range(4):
            if number == 2:
                wall.put = put
            lines(tmp_path / "in" / "a.jsonl", number)
            at(run, wall.seconds + (20.5 if number == 2 else 10.5))
            assert len(tg.epochs(run.flow)) == number + 1, "within an interval, or two when the clock is put"
        assert minted(run) == sorted(minted(run))
        run.step()
        assert tg.read_arrow(run.flow, "files").num_rows == 4
