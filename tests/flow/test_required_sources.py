"""A source that cannot be asked is left behind, unless it is required: then nothing is bound without it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.flow.by_hand import Clock, World
from tests.flow.minting import Asked, at, awaited, begin, flow, rows, sizes, state

import tidegauge as tg
from tidegauge.cli.run import LiveBoard
from tidegauge.cli.standing import status_json, status_view
from tidegauge.errors.running import TickHeld, UpstreamRecreated
from tidegauge.remap.operator import PATIENCE
from tidegauge.remap.policy import Policy

WAITING = "nothing is bound: waiting for required source 'slow'"
EACH = pytest.mark.parametrize(
    "policy", [tg.Every(1), tg.Every(records=5), tg.Every(1, records=5)], ids=["time", "size", "both"]
)


@EACH
def test_a_source_that_cannot_be_asked_keeps_its_frontier_and_the_others_tick_on(
    policy: Policy, tmp_path: Path
) -> None:
    slow = Asked(rows())
    run = begin(tmp_path, policy, slow=slow, other=rows())
    at(run, 2, every=1)
    slow.hide()
    bound = run.runner.board.timeline.tables["slow"].frontier
    before = len(sizes(run))
    at(run, 6, every=1)
    assert state(run, "slow") == "stalled"
    assert run.runner.board.timeline.tables["slow"].frontier == bound
    assert all(set(epoch) == {"other"} for epoch in sizes(run)[before:])
    assert len(sizes(run)) == before + 4
    slow.show()
    run.step(30)
    assert state(run, "slow") == "running"
    assert set(sizes(run)[-1]) == {"slow", "other"}
    run.abandon()


@EACH
def test_without_a_source_that_is_required_nothing_is_bound_until_it_answers(policy: Policy, tmp_path: Path) -> None:
    slow = Asked(rows())
    run = begin(tmp_path, policy, ("slow",), slow=slow, other=rows())
    at(run, 2, every=1)
    before = len(sizes(run))
    slow.hide()
    at(run, 10)
    assert len(sizes(run)) == before > 0
    assert state(run, "slow") == "stalled"
    assert state(run, "other") == "running"
    assert awaited(run) == ("slow",)
    slow.show()
    run.step(30)
    assert awaited(run) == ()
    assert set(sizes(run)[before]) == {"slow", "other"}
    assert sum(epoch["other"] for epoch in sizes(run)) == 401
    run.abandon()


def test_a_required_source_that_does_not_answer_holds_the_tick_too(tmp_path: Path) -> None:
    run = World(tmp_path, lambda _world: flow(tmp_path, 1, ("slow",), slow=rows(), other=rows()), lag=10_000).start()
    at(run, PATIENCE + 3)
    assert awaited(run) == ("slow",)
    assert sizes(run) == []
    run.abandon()


def test_a_tick_that_is_asked_for_says_that_it_is_held(tmp_path: Path) -> None:
    slow = Asked(rows())
    slow.hide()
    run = begin(tmp_path, tg.Manual(), ("slow",), slow=slow, other=rows())
    asked = run.runner.requests.ask()
    run.step()
    with pytest.raises(TickHeld, match=WAITING):
        asked.result(timeout=0)
    slow.show()
    run.step(60)
    asked = run.runner.requests.ask()
    run.step()
    assert asked.result(timeout=0) == 0
    run.abandon()


def test_a_required_source_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    clock = Clock()
    for until in (5, 10):
        run = begin(tmp_path, 1, ("short",), clock, short=rows(3, rate=None), other=rows())
        before = len(sizes(run)) if until == 10 else 0
        at(run, until)
        assert state(run, "short") == "sealed"
        assert len(sizes(run)) >= before + 4
        run.abandon()


def test_a_required_source_that_has_failed_is_the_end_of_the_run(tmp_path: Path) -> None:
    slow = Asked(rows())
    made = flow(tmp_path, 0.01, ("slow",), slow=slow, other=rows())

    def fail() -> tg.Dataflow:
        raise UpstreamRecreated(source="slow", known="a", found="b")

    slow.instead = fail  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(UpstreamRecreated):
            made.run(engine=tg.LocalEngine(threads=0))
        assert tg.epochs(made) == []
    assert tg.status(made).awaited == ("slow",)


def test_status_and_the_running_view_say_what_holds_the_ticks(tmp_path: Path) -> None:
    slow = Asked(rows())
    slow.hide()
    run = begin(tmp_path, 1, ("slow",), slow=slow, other=rows())
    at(run, 3)
    console = Console(width=200, file=io.StringIO(), record=True)
    LiveBoard(console)(run.runner.board)
    assert WAITING in console.export_text()

    report = tg.status(run.flow)
    assert report.awaited == ("slow",)
    assert {source.name: source.required for source in report.sources} == {"slow": True, "other": False}
    assert status_json(report)["awaited"] == ["slow"]
    console.print(status_view(report))
    assert WAITING in console.export_text()

    slow.show()
    assert tg.status(run.flow).awaited == ()
    run.abandon()


def test_a_source_is_required_or_not() -> None:
    made = tg.Dataflow("shop", store="sqlite:///shop.db")
    with pytest.raises(tg.TidegaugeError, match="required cannot be 'yes'"):
        made.source("rows", rows(), required="yes")  # type: ignore[arg-type]
    assert made.required == frozenset()
    made.source("rows", rows(), required=True)
    assert made.required == {"rows"}
