"""`flow.tick()` from other threads, while the flow runs in one."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.flow.minting import Asked, flow, rows

import tidegauge as tg
from tidegauge.errors.running import CannotTick, UpstreamRecreated
from tidegauge.flow.runner import Outcome
from tidegauge.remap.round import Requests


@contextmanager
def running(made: tg.Dataflow, watch: Callable[[Any], None] | None = None) -> Iterator[Future[Outcome]]:
    """Run a flow in a thread; it has begun when this is entered, and has to end by itself."""
    begun = threading.Event()

    def seen(board: Any) -> None:
        begun.set()
        if watch is not None:
            watch(board)

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(lambda: made.run(engine=tg.LocalEngine(threads=0), watch=seen))
        run.add_done_callback(lambda _run: begun.set())
        assert begun.wait(60)
        yield run


def test_each_tick_is_an_epoch_while_there_is_something_new(tmp_path: Path) -> None:
    made = flow(tmp_path, tg.Manual(), rows=rows(25, rate=None, max_records_per_epoch=10))
    with running(made) as run:
        assert [made.tick(), made.tick()] == [0, 1]
        assert not run.done()
        assert made.tick() == 2, "the last one ends the source, and so the run"
    assert run.result() == Outcome("minting", 3, "sealed")
    assert tg.read_arrow(made, "rows").column("_epoch").to_pylist() == [*[0] * 10, *[1] * 10, *[2] * 5]


def test_many_threads_may_tick_at_once_and_each_gets_an_answer(tmp_path: Path) -> None:
    made = flow(tmp_path, tg.Manual(), rows=rows(6, rate=None, max_records_per_epoch=1))
    with running(made) as run, ThreadPoolExecutor(8) as others:
        epochs: list[int | None] = []
        while not run.done():
            try:
                epochs += list(others.map(lambda _n: made.tick(), range(8)))
            except CannotTick:  # the run has ended
                break
    assert run.result().published == 6
    assert set(epochs) <= {*range(6), None}


def test_without_a_run_there_is_no_tick(tmp_path: Path) -> None:
    made = flow(tmp_path, tg.Manual(), rows=rows(1, rate=None))
    with pytest.raises(CannotTick, match="TG-0555: the flow 'minting' cannot be ticked: it does not run"):
        made.tick()
    with running(made):
        assert made.tick() == 0
    with pytest.raises(CannotTick, match="it does not run"):
        made.tick()


def test_the_thread_that_runs_the_flow_does_not_wait_for_itself(tmp_path: Path) -> None:
    made = flow(tmp_path, 0.01, rows=rows(1, rate=None))
    refused: list[CannotTick] = []

    def watch(_board: Any) -> None:
        try:
            made.tick()
        except CannotTick as error:
            refused.append(error)

    with running(made, watch) as run:
        assert run.result().published == 1
    assert "this is the thread that runs it" in str(refused[0])


def test_a_run_that_breaks_off_leaves_nobody_waiting(tmp_path: Path) -> None:
    source = Asked(rows())

    def fail() -> Any:
        raise ZeroDivisionError

    source.instead = fail
    made = flow(tmp_path, tg.Manual(), rows=source)
    with running(made) as run:
        with pytest.raises(CannotTick, match="its run has ended"):
            made.tick()
        assert run.exception() is not None


def test_a_source_that_fails_is_no_answer_to_wait_for(tmp_path: Path) -> None:
    source = Asked(rows())

    def fail() -> Any:
        raise UpstreamRecreated(source="rows", known="a", found="b")

    source.instead = fail
    made = flow(tmp_path, tg.Manual(), rows=source, other=rows(1, rate=None))
    with running(made) as run:
        assert made.tick() == 0, "the other one moved"
        with pytest.raises(UpstreamRecreated):
            run.result()


def test_a_second_run_that_is_refused_does_not_take_the_ticks_of_the_first(tmp_path: Path) -> None:
    made = flow(tmp_path, tg.Manual(), rows=rows(1, rate=None))
    with running(made):
        with pytest.raises(tg.TidegaugeError, match="TG-0204"):
            made.run(engine=tg.LocalEngine(threads=0))
        assert made.tick() == 0


def test_a_copy_of_a_running_flow_knows_of_no_run(tmp_path: Path) -> None:
    requests = Requests("minting")
    requests.open(wake=threading.Lock().acquire)
    copy = pickle.loads(pickle.dumps(requests))
    with pytest.raises(CannotTick, match="it does not run"):
        copy.ask().result(timeout=0)
    assert not copy.own_thread
    assert requests.own_thread
