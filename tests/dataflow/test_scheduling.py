"""Activations, timers, parking, other threads, dropping, and what must not be done within a step."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import pytest

from tidegauge.dataflow import Activator, Messages, OperatorContext, SyncActivator, Worker
from tidegauge.dataflow.schedule import Activations
from tidegauge.errors.dataflow import OperatorFailed, Reentrant, UnknownDataflow


def counting(runs: list[Any], act: Any = None) -> Any:
    def build(context: OperatorContext) -> Any:
        def step(output: Any) -> Any:
            runs.append(context.path)
            return act(context) if act is not None else None

        return step

    return build


def test_an_operator_that_wakes_itself_runs_once_in_each_step(worker: Worker) -> None:
    runs: list[Any] = []
    with worker.dataflow("flow") as scope:
        scope.source("busy", counting(runs, lambda context: context.activator.activate()))
    for expected in range(1, 6):
        worker.step()
        assert len(runs) == expected


def test_a_timer_wakes_by_the_workers_clock(worker: Worker, clock: Any) -> None:
    runs: list[Any] = []
    with worker.dataflow("flow") as scope, scope.region("inside") as inside:
        inside.source("late", counting(runs, lambda context: context.activator.activate_after(0.5)))
    worker.step()
    clock.seconds = 0.4
    worker.step()
    assert len(runs) == 1
    clock.seconds = 0.5
    worker.step()
    assert len(runs) == 2


def test_parking_ends_when_a_timer_is_due() -> None:
    worker = Worker(time.monotonic)
    runs: list[Any] = []
    with worker.dataflow("flow") as scope:
        scope.source("late", counting(runs, lambda context: context.activator.activate_after(0.02)))
    while len(runs) < 3:
        worker.step_or_park(None)


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Whether a call was ended by Ctrl-C right before its instruction of that number: there were as many."""
    passed, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        frame.f_trace_opcodes = True
        passed += event == "opcode"
        if passed == at:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def within(seconds: float, *calls: Callable[[], object]) -> bool:
    """Whether the calls, one after another in a thread of their own, come to their end."""
    thread = threading.Thread(target=lambda: [call() for call in calls], daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


@pytest.mark.parametrize("doing", ["waking", "sleeping", "beginning a step"])
def test_a_worker_can_be_woken_at_whatever_instant_ctrl_c_came_before(doing: str) -> None:
    for at in count(1):
        activations = Activations(time.monotonic)
        if doing == "beginning a step":
            activations.unpark()
        calls: dict[str, Callable[[], object]] = {
            "waking": activations.unpark,
            "sleeping": partial(activations.park, 0.0001),
            "beginning a step": activations.listen,
        }
        more = interrupted(calls[doing], at)
        assert within(10, activations.unpark, partial(activations.park, None)), f"at instruction {at}"
        if not more:
            break
    assert at > 3


def test_a_signal_s_handler_that_takes_longer_than_the_rest_of_the_parking_does_not_make_it_endless() -> None:
    activations = Activations(time.monotonic)
    before = signal.signal(signal.SIGUSR1, lambda *_: time.sleep(0.2))
    signals = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGUSR1))
    rescue = threading.Timer(10, activations.unpark)
    try:
        signals.start()
        rescue.start()
        activations.park(0.2)
        assert rescue.is_alive()
    finally:
        rescue.cancel()
        signals.join()
        signal.signal(signal.SIGUSR1, before)


def test_parking_ends_when_another_thread_wakes_and_costs_nothing_meanwhile() -> None:
    worker = Worker(time.monotonic)
    runs: list[Any] = []
    activators: list[SyncActivator] = []
    with worker.dataflow("flow") as scope:
        scope.source("waits", counting(runs, lambda context: activators.append(context.sync_activator())))
    while worker.step_or_park(0) and len(runs) < 1:
        pass
    worker.step()
    parked = threading.Event()

    def wake() -> None:
        parked.wait()
        threading.Timer(0.2, activators[0].activate).start()

    thread = threading.Thread(target=wake)
    thread.start()
    before = time.thread_time()
    parked.set()
    while len(runs) < 2:
        worker.step_or_park(None)
    thread.join()
    assert time.thread_time() - before < 0.15


def test_no_wake_up_is_lost_between_two_steps() -> None:
    worker = Worker(time.monotonic)
    total = 2000
    got: list[int] = []
    queue: list[int] = []
    activators: list[SyncActivator] = []

    def take(context: OperatorContext) -> None:
        if not activators:
            activators.append(context.sync_activator())
        while queue:
            got.append(queue.pop())

    with worker.dataflow("flow") as scope:
        scope.source("takes", counting([], take))
    worker.step()

    def feed() -> None:
        for n in range(total):
            queue.append(n)
            activators[0].activate()

    thread = threading.Thread(target=feed)
    thread.start()
    while len(got) < total:
        worker.step_or_park(None)
    thread.join()
    assert sorted(got) == list(range(total))


def test_waking_before_parking_ends_it_at_once() -> None:
    worker = Worker(time.monotonic)
    runs: list[Any] = []
    activators: list[SyncActivator] = []
    with worker.dataflow("flow") as scope:
        scope.source("waits", counting(runs, lambda context: activators.append(context.sync_activator())))
    worker.step()
    activators[0].activate()
    activators[0].activate()
    assert worker.step_or_park(None)
    assert len(runs) == 2


def test_unfinished_work_keeps_a_dataflow_alive(worker: Worker) -> None:
    left = [True, True, False]

    def act(context: OperatorContext) -> bool:
        context.capabilities[0].drop()
        context.activator.activate()
        return left.pop(0)

    with worker.dataflow("flow") as scope:
        scope.source("commits", counting([], act))
    assert [worker.step(), worker.step(), worker.step()] == [True, True, False]
    assert left == []


def test_idle_operators_are_not_run(worker: Worker) -> None:
    runs: list[Any] = []
    with worker.dataflow("flow") as scope:
        for n in range(20):
            scope.source(f"idle {n}", counting(runs))
        feed, stream = scope.input("input")
        probe = stream.probe()
    worker.step()
    runs.clear()
    for r in range(5):
        feed.advance_to(r + 1)
        while probe.less_than(r + 1):
            worker.step()
    assert runs == []


@pytest.mark.parametrize(("progress", "woken"), [(True, 4), (False, 2)])
def test_who_drains_batches_alone_is_not_woken_by_a_frontier(worker: Worker, progress: bool, woken: int) -> None:
    runs: list[Any] = []
    batches: list[Any] = []
    with worker.dataflow("here") as scope:
        feed, stream = scope.input("input")
        queue = stream.capture(progress=progress)

    def drain(context: OperatorContext) -> None:
        batches.extend(event.batch for event in queue.drain() if isinstance(event, Messages))

    def build(context: OperatorContext) -> Any:
        queue.attach(context.sync_activator())
        return counting(runs, drain)(context)

    with worker.dataflow("there") as scope:
        scope.source("drains", build)
    worker.settle()
    feed.send("batch")
    worker.settle()
    for time_ in (1, 2):
        feed.advance_to(time_)
        worker.settle()
    assert (batches, len(runs)) == (["batch"], woken)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_stream_alone_is_joined_with_nothing(worker: Worker, streams: int) -> None:
    with worker.dataflow("flow") as scope:
        joined = scope.concatenate([scope.empty() for _ in range(streams)])
        _ = joined.inspect(print)
    assert [box.name for box in worker.draw("flow").boxes].count("concat") == streams - 1


def test_a_step_within_a_step_is_refused(worker: Worker) -> None:
    calls: list[Callable[[], object]] = [
        worker.step,
        lambda: worker.dataflow("more"),
        lambda: worker.drop_dataflow("flow"),
    ]

    def act(_: OperatorContext) -> None:
        while calls:
            with pytest.raises(Reentrant):
                calls.pop()()

    with worker.dataflow("flow") as scope:
        scope.source("calls", counting([], act))
    worker.step()
    assert calls == []


def test_a_dropped_dataflow_is_left_as_it_is(worker: Worker) -> None:
    activators: list[SyncActivator] = []
    runs: list[Any] = []
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        scope.source("waits", counting(runs, lambda context: activators.append(context.sync_activator())))
        probe = stream.probe()
    feed.advance_to(3)
    worker.step(), worker.step()
    worker.drop_dataflow("flow")
    activators[0].activate()
    feed.close()
    assert not worker.step()
    assert (list(probe.frontier()), runs) == ([3], ["flow/waits"])
    with pytest.raises(UnknownDataflow, match="no dataflow named 'flow'"):
        worker.drop_dataflow("flow")


def test_two_operators_of_one_name_have_two_paths(worker: Worker) -> None:
    def act(_: OperatorContext) -> None:
        raise LookupError

    with worker.dataflow("flow") as scope:
        scope.source("same", counting([]))
        scope.source("same", counting([], act))
    with pytest.raises(OperatorFailed, match="flow/same#2"):
        worker.step()


def test_a_worker_without_a_dataflow_does_not_park(worker: Worker) -> None:
    assert not worker.step_or_park(None)


class Weight:
    """Something that a dataflow keeps in memory."""


@pytest.mark.parametrize("end", ["dropped", "complete"])
def test_nothing_is_kept_of_a_dataflow_that_is_over(worker: Worker, end: str) -> None:
    gone: list[weakref.ref[Weight]] = []

    def build(context: OperatorContext) -> Any:
        weight = Weight()
        gone.append(weakref.ref(weight))

        def step(output: Any) -> None:
            context.activator.activate_after(3600.0)
            if end == "complete" and weight is not None:
                context.capabilities[0].drop()

        return step

    for _ in range(3):
        with worker.dataflow("flow") as scope:
            scope.source("late", build)
        worker.step()
        worker.step()
        if end == "dropped":
            worker.drop_dataflow("flow")
        del scope
    gc.collect()
    assert [kept() for kept in gone] == [None, None, None]
    assert worker.next_timer is None


def test_timers_of_an_operator_that_others_wake_too_do_not_pile_up(worker: Worker, clock: Any) -> None:
    runs: list[float] = []

    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()

        def step(feed: Any, output: Any) -> None:
            for _ in feed.drain():
                pass
            runs.append(clock.seconds)
            context.activator.activate_after(60.0)

        return step

    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        stream.unary("polls", build)
    for _ in range(2_000):
        clock.seconds += 0.005
        feed.send("x")
        worker.settle()
    before = len(runs)
    for _ in range(70):
        clock.seconds += 1.0
        worker.step()
        worker.settle()
    assert 1 <= len(runs) - before < 200
    assert any(runs[0] + 60.0 <= at <= runs[0] + 61.0 for at in runs), "the first one is not later"


@pytest.mark.parametrize("seconds", [0.001, 0.7, 5.0, 60.0, 86_400.0])
def test_of_very_many_timers_none_is_early_and_none_is_late_by_more_than_a_sixteenth(
    worker: Worker, clock: Any, seconds: float
) -> None:
    ran: list[float] = []
    activators: list[Activator] = []

    def build(context: OperatorContext) -> Any:
        activators.append(context.activator)
        return lambda output: ran.append(clock.seconds)

    with worker.dataflow("flow") as scope:
        scope.source("waits", build)
    worker.step()
    asked: list[float] = []
    for _ in range(200):
        activators[0].activate_after(seconds)
        asked.append(clock.seconds)
        clock.seconds += seconds / 500
    ran.clear()
    while worker.next_timer is not None:
        clock.seconds = max(clock.seconds, worker.next_timer)
        worker.step()
    for at in asked:
        assert any(at + seconds <= run <= at + seconds * (1 + 1 / 16) for run in ran)
    assert len(ran) < 60
