"""A pushing upstream that was restored from an older backup under the same identity: it is said, with both numbers.

Nothing of it is bound, nothing is acknowledged to it, and what was lost is not covered up by what it appends later.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flow.by_hand import Run
from tests.flow.test_pushed_laws import OUTPUTS, Spring, check, make
from tests.flow.test_pushed_rows import catch_up, fill, numbers
from tests.flow.test_pushed_rows import make as make_feed
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.push import PushedEndTakenBack
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.frontier import Frontier
from tidegauge.testing import LogServer


@pytest.fixture
def log() -> Iterator[LogServer]:
    with LogServer(forgets=True) as server:
        yield server


def refused(world: Spring, run: Run, error: type[Exception], said: str) -> None:
    """The source fails with an error that says this, nothing more is bound, and upstream is told nothing."""
    bound, told = run.runner.board.upper, len(world.well.told)
    for _ in range(12):
        run.step()
    source = run.runner.board.sources["feed"]
    assert (source.state, type(source.error)) == ("failed", error), source
    assert said in str(source.error)
    assert run.runner.board.upper == bound
    assert len(world.well.told) == told, "it would delete what it appends in the places of old records"
    run.abandon()


def test_a_log_that_was_cut_off_between_two_runs_is_refused_whatever_it_appends_later(
    tmp_path: Path, log: LogServer
) -> None:
    fill(log, 0, 10)
    flow = make_feed(tmp_path, log)
    catch_up(flow)
    eventually(lambda: log.acknowledged == log.end)
    log.forgets = False
    log.restore(Frontier({"p0": 3, "p1": 5}))
    log.append({"n": 100, "name": "in the place of row 6"}, partition="p0")
    told = log.acknowledged
    with pytest.raises(UpstreamRecreated, match=r"'p0 with records to 4'.* 'p0 with records to 5'"):
        catch_up(flow)
    assert log.acknowledged == told, "it would delete what it appended"
    fill(log, 102, 110)
    with pytest.raises(UpstreamRecreated, match="'p0 with records to 4'"):
        catch_up(flow)
    assert numbers(flow) == list(range(10))
    report = tg.status(flow).sources[0]
    assert (report.state, getattr(report.error, "code", None)) == ("failed", UpstreamRecreated.code)


def test_the_user_may_go_on_with_the_restored_log_as_a_new_incarnation(tmp_path: Path) -> None:
    with LogServer() as log:
        fill(log, 0, 10)
        flow = make_feed(tmp_path, log)
        catch_up(flow)
        log.restore(Frontier({"p0": 3, "p1": 3}))
        with pytest.raises(UpstreamRecreated):
            catch_up(flow)
        tg.resume(flow, "feed", new_incarnation=True)
        fill(log, 100, 110)
        catch_up(flow)
        assert numbers(flow) == sorted([*range(10), *range(6), *range(100, 110)])


def test_a_log_that_is_cut_off_while_a_run_goes_on_fails_its_source_when_it_is_back(
    tmp_path: Path, log: LogServer
) -> None:
    fill(log, 0, 10)
    flow = make_feed(tmp_path, log)
    run = flow.start(engine=tg.LocalEngine(threads=1))
    eventually(lambda: log.acknowledged == log.end)
    log.restore(Frontier({"p0": 5, "p1": 4}))
    eventually(lambda: tg.status(flow).sources[0].state == "failed")
    with pytest.raises(UpstreamRecreated, match=r"'p1 with records to 4'.* 'p1 with records to 5'"):
        run.wait()
    assert numbers(flow) == list(range(10))


def test_a_partition_that_is_gone_ends_at_0(tmp_path: Path) -> None:
    world = Spring(tmp_path, make)
    run = world.start()
    world.write("p0", "a", 5)
    world.write("p1", "b", 5)
    run.catch_up()
    run.abandon()
    del world.well.records["p1"]
    run = world.start()
    refused(
        world,
        run,
        UpstreamRecreated,
        "found 'p1 with records to 0', and the timeline was built from 'p1 with records to 5'",
    )


def test_what_was_bound_and_not_read_is_refused_at_the_first_epoch_that_lacks_it(tmp_path: Path) -> None:
    world = Spring(tmp_path, make)
    run = world.start()
    world.write("p0", "a", 5)
    run.catch_up()
    world.faults.extend([True] * 99)  # no output can commit from now on
    world.write("p0", "a", 5)
    for _ in range(5):
        run.step()
    assert run.runner.board.sources["feed"].bound == Frontier({"p0": 10})
    held = min(run.runner.board.outputs[name].upper for name in OUTPUTS)
    run.abandon()
    world.faults.clear()
    known = {partition: list(records) for partition, records in world.well.records.items()}
    world.well.restore(Frontier({"p0": 7}))
    run = world.start()
    refused(
        world,
        run,
        UpstreamRecreated,
        "found 'p0 with records to 7', and the timeline was built from 'p0 with records to 10'",
    )
    assert run.runner.board.sources["feed"].failed_at == held
    world.well.records = known
    tg.resume(make(world), "feed")
    run = world.start()
    run.catch_up()
    check(world)
    run.abandon()


@pytest.mark.parametrize(
    ("given", "left"),
    [pytest.param(2, 7, id="shown"), pytest.param(10, 7, id="received"), pytest.param(2, 1, id="both")],
)
def test_what_was_shown_or_received_and_not_bound_is_said_to_be_gone(tmp_path: Path, given: int, left: int) -> None:
    world = Spring(tmp_path, make)
    run = world.start()
    world.write("p0", "a", 10)
    world.well.cuts.extend([given, *[0] * 99])
    run.step(seconds=0.1)  # a call, and no tick
    assert run.runner.board.upper == 0
    world.well.restore(Frontier({"p0": left}))
    refused(
        world,
        run,
        PushedEndTakenBack,
        f"partition 'p0' reached to 10 when upstream last told, and ends at {left} now",
    )
    world.well.cuts.clear()
    tg.resume(make(world), "feed")
    run = world.start()
    run.catch_up()
    check(world)
    run.abandon()


def test_an_end_that_was_told_stays_in_mind_where_upstream_falls_silent(tmp_path: Path) -> None:
    world = Spring(tmp_path, make)
    run = world.start()
    world.write("p0", "a", 10)
    world.well.cuts.extend([2, *[0] * 99])
    run.step(seconds=0.05)
    world.well.tells = False
    world.well.cuts.appendleft(3)
    run.step(seconds=0.05)
    world.well.tells = True
    world.well.restore(Frontier({"p0": 8}))
    refused(world, run, PushedEndTakenBack, "reached to 10 when upstream last told, and ends at 8 now")


def test_what_became_durable_while_upstream_was_away_is_not_told_to_one_that_lost_it(tmp_path: Path) -> None:
    world = Spring(tmp_path, make)
    run = world.start()
    world.write("p0", "a", 5)
    run.step(seconds=0.1)
    world.well.cuts.append(-1)  # the connection breaks
    run.step(seconds=0.5)
    assert {output.upper for output in run.runner.board.outputs.values()} == {1}
    assert not world.well.told
    world.well.restore(Frontier({"p0": 3}))
    refused(world, run, UpstreamRecreated, "found 'p0 with records to 3'")
