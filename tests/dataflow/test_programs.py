"""Whole programs: loops, regions, steps per round. Cases C56, C58 to C60, C72 to C75."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.dataflow import INT, Bounded, Product, Scope, Stash, Stream, Worker
from tidegauge.errors.dataflow import InvalidGraph, InvalidSummary, ZeroCycle

Finish = Callable[[Worker], int]


def steps_until(worker: Worker, probe: Any, time: int) -> int:
    steps = 0
    while probe.less_than(time):
        worker.step()
        steps += 1
        assert steps < 1000, [str(holder) for holder in worker.explain_stuck()]
    return steps


def by_time(stream: Stream[Any], keep: Callable[[Any], bool]) -> Stream[Any]:
    """Send on the batches whose time is to be kept."""

    def build(context: Any) -> Any:
        context.capabilities[0].drop()

        def step(feed: Any, output: Any) -> None:
            for capability, batch in feed.drain():
                if keep(capability.time):
                    output.give(capability, batch)

        return step

    return stream.unary("by time", build, notify=False)


def test_c56_batches_pass_through_empty_regions(worker: Worker, finish: Finish) -> None:
    seen: list[Any] = []
    with worker.dataflow("outer") as scope:
        feed, stream = scope.input("input")
        with scope.region("one") as one:
            entered = stream.enter(one)
            with one.region("two") as two:
                through = entered.enter(two).leave()
            left = through.leave()
        probe = left.inspect(lambda stamp, batch: seen.append((stamp[0], batch))).probe()
    for r in range(10):
        feed.send(r)
        feed.advance_to(r + 1)
        steps_until(worker, probe, r + 1)
    feed.close()
    finish(worker)
    assert seen == [(r, r) for r in range(10)]


def test_c58_what_circulates_is_seen_once_at_each_time(worker: Worker, finish: Finish) -> None:
    seen: Counter[int] = Counter()
    with worker.dataflow("circle") as scope:
        feed, stream = scope.input("input")
        handle, again = scope.feedback(1)
        around = stream.concat(again).inspect(lambda stamp, _: seen.update([stamp[0]]))
        handle.connect(by_time(around, lambda t: t < 100))
        probe = around.probe()
    for n in range(10):
        feed.send(n)
    feed.close()
    finish(worker)
    assert seen == dict.fromkeys(range(101), 10)
    assert probe.done()


def test_c59_collatz(worker: Worker, finish: Finish) -> None:
    seen: list[tuple[int, int]] = []
    with worker.dataflow("collatz") as scope:
        feed, stream = scope.input("input")
        handle, again = scope.feedback(1)
        mapped = stream.concat(again).map(lambda n: n // 2 if n % 2 == 0 else 3 * n + 1)
        handle.connect(mapped.inspect(lambda stamp, n: seen.append((stamp[0], n))).filter(lambda n: n > 1))
    for n in range(1, 10):
        feed.send(n)
    feed.close()
    finish(worker)
    assert (len(seen), max(t for t, _ in seen), max(n for _, n in seen)) == (64, 18, 52)


def test_a_bounded_loop_ends_by_itself(worker: Worker, finish: Finish) -> None:
    seen: list[int] = []
    with worker.dataflow("circle", order=Bounded(4)) as scope:
        feed, stream = scope.input("input")
        handle, again = scope.feedback(1)
        around = stream.concat(again).inspect(lambda stamp, _: seen.append(stamp[0]))
        handle.connect(around)
        probe = around.probe()
    feed.send("x")
    feed.close()
    finish(worker)
    assert (seen, probe.done()) == ([0, 1, 2, 3, 4], True)


def zero_cycle(worker: Worker, summary: Any, *, zero_cycles: bool) -> tuple[Any, Any, list[int]]:
    seen: list[int] = []
    with worker.dataflow("circle", zero_cycles=zero_cycles) as scope:
        feed, stream = scope.input("input")
        handle, again = scope.feedback(summary)
        grown = stream.concat(again).map(lambda n: n + 1).inspect(lambda _, n: seen.append(n))
        handle.connect(grown.filter(lambda n: n < 10))
        probe = grown.probe()
    return feed, probe, seen


@pytest.mark.parametrize("summary", [0, None])
def test_c60_a_cycle_that_does_not_advance_is_refused(worker: Worker, summary: Any) -> None:
    with pytest.raises(ZeroCycle, match=r"through 'feedback', 'concat', 'map', 'inspect', 'filter'"):
        zero_cycle(worker, summary, zero_cycles=False)
    assert worker.dataflows == ()


def test_c60_on_request_it_runs_and_is_never_finished(worker: Worker) -> None:
    feed, probe, seen = zero_cycle(worker, 0, zero_cycles=True)
    for n in range(4):
        feed.send(n)
    feed.close()
    while worker.step():
        pass
    assert Counter(seen) == Counter(n for start in range(4) for n in range(start + 1, 11))
    assert list(probe.frontier()) == [0]
    assert not probe.done()


def test_c60_a_cycle_through_a_nested_scope_is_refused_too(worker: Worker) -> None:
    with pytest.raises(ZeroCycle, match="'inside'"), worker.dataflow("circle") as scope:  # noqa: PT012
        handle, again = scope.feedback(0)
        with scope.region("inside") as inside:
            through = again.enter(inside).leave()
        handle.connect(through)


def test_c60_product_times_must_advance_in_some_part(worker: Worker) -> None:
    with pytest.raises(ZeroCycle), worker.dataflow("circle", order=Product(INT, INT)) as scope:  # noqa: PT012
        handle, again = scope.feedback((0, 0))
        handle.connect(again)
    with pytest.raises(InvalidSummary), worker.dataflow("circle", order=Product(INT, INT)) as scope:
        scope.feedback(1)


@pytest.mark.parametrize("maps", [1, 10, 100])
@pytest.mark.parametrize(
    ("inside", "data", "steps"), [(False, True, 2), (False, False, 2), (True, True, 3), (True, False, 2)]
)
def test_c72_steps_of_a_round(worker: Worker, maps: int, *, inside: bool, data: bool, steps: int) -> None:
    def chain(stream: Stream[Any]) -> Stream[Any]:
        for _ in range(maps):
            stream = stream.map(lambda batch: batch)
        return stream

    with worker.dataflow("chain") as scope:
        feed, stream = scope.input("input")
        if inside:
            with scope.region("region") as region:
                result = chain(stream.enter(region)).leave()
        else:
            result = chain(stream)
        probe = result.probe()
    worker.step(), worker.step(), worker.step()
    for r in range(3):
        if data:
            feed.send([r])
        feed.advance_to(r + 1)
        assert steps_until(worker, probe, r + 1) == steps


def test_c73_two_nested_loops(worker: Worker, finish: Finish) -> None:
    def twice(scope: Scope, stream: Stream[Any], turn: Callable[[Stream[Any]], Stream[Any]], advance: Any) -> Any:
        handle, again = scope.feedback(advance)
        around = turn(stream.concat(again))
        handle.connect(by_time(around, lambda t: t[1] < 1))
        return by_time(around, lambda t: t[1] == 1)

    inner_times: list[Any] = []
    outer_seen: list[Any] = []
    with worker.dataflow("root") as scope:
        feed, stream = scope.input("input")
        with scope.iterative("outer") as outer:

            def turn(stream: Stream[Any]) -> Stream[Any]:
                with outer.iterative("inner") as inner:
                    entered = stream.enter(inner)
                    look = lambda s: s.inspect(lambda stamp, _: inner_times.append(stamp[0]))  # noqa: E731
                    return twice(inner, entered, look, (None, 1)).leave()  # type: ignore[no-any-return]

            result = twice(outer, stream.enter(outer), turn, (0, 1)).leave()
        probe = result.inspect(lambda stamp, batch: outer_seen.append((stamp[0], batch))).probe()
    feed.send([7])
    feed.close()
    finish(worker)
    assert inner_times == [((0, 0), 0), ((0, 0), 1), ((0, 1), 0), ((0, 1), 1)]
    assert (outer_seen, probe.done()) == ([(0, [7])], True)


@pytest.mark.parametrize("kind", ["region", "iterative"])
def test_c74_batches_that_die_inside_do_not_hold_the_round(worker: Worker, finish: Finish, kind: str) -> None:
    with worker.dataflow("outer") as scope:
        feed, stream = scope.input("input")
        with getattr(scope, kind)("inner") as inner:
            result = stream.enter(inner).filter(lambda _: False).leave()
        probe = result.probe()
    for r in range(10):
        feed.send(r)
        worker.step()
        feed.advance_to(r + 1)
        steps_until(worker, probe, r + 1)
    feed.close()
    finish(worker)


def test_c75_a_loop_limits_what_is_in_flight(worker: Worker, finish: Finish) -> None:
    in_flight: list[int] = []

    def build(context: Any) -> Any:
        context.capabilities[0].drop()
        stash: Stash[list[Any]] = Stash(list)

        def step(data: Any, loop: Any, output: Any) -> None:
            for _ in loop.drain():
                in_flight.clear()
            for message, batch in data.drain():
                stash.at(message.time, message.retain).append(batch)
            for capability, batches in stash.ready([data.frontier, Earlier(loop.frontier)]):
                for batch in batches:
                    output.give(capability, batch)
                in_flight.append(capability.time)
                capability.drop()
                assert len(in_flight) == 1
                break

        return step

    class Earlier:
        def __init__(self, frontier: Any) -> None:
            self.frontier = frontier

        def less_equal(self, time: int) -> bool:
            return bool(self.frontier.less_than(time))

    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        handle, again = scope.feedback(1)
        paced = stream.binary(again, "pace", build)
        handle.connect(paced.map(lambda batch: batch))
        probe = paced.probe()
    for r in range(8):
        feed.send(r)
        feed.advance_to(r + 1)
    feed.close()
    finish(worker)
    assert probe.done()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda scope, stream, _: scope.feedback(1), "never finished"),
        (lambda scope, stream, _: scope.region("open"), "never finished"),
        (lambda scope, stream, _: stream.leave(), "has no scope around it|cannot be used here"),
        (lambda scope, stream, other: stream.concat(other), "of the scope other cannot be used here"),
        (lambda scope, stream, _: stream.enter(scope), "cannot be used here"),
    ],
)
def test_a_graph_that_cannot_run_is_refused(worker: Worker, wrong: Any, problem: str) -> None:
    with worker.dataflow("other") as scope:
        _, other = scope.input("input")
    with pytest.raises(InvalidGraph, match=problem), worker.dataflow("flow") as scope:  # noqa: PT012
        _, stream = scope.input("input")
        wrong(scope, stream, other)
    assert worker.dataflows == ("other",)
    with pytest.raises(InvalidGraph, match="not open"):
        stream.map(lambda batch: batch)


def test_a_dataflow_whose_block_raises_is_not_installed(worker: Worker) -> None:
    with pytest.raises(LookupError), worker.dataflow("flow") as scope:  # noqa: PT012
        scope.input("input")
        raise LookupError
    assert worker.dataflows == ()
    with worker.dataflow("flow") as scope:
        scope.input("input")
    with pytest.raises(InvalidGraph, match="already has a dataflow of this name"):
        worker.dataflow("flow")


def test_a_probe_in_a_nested_scope_says_that_all_is_possible_until_the_first_step(worker: Worker) -> None:
    with worker.dataflow("outer") as scope:
        feed, stream = scope.input("input")
        with scope.region("one") as one, one.region("two") as two:
            probe = stream.enter(one).enter(two).probe()
        assert list(probe.frontier()) == [0]
    assert list(probe.frontier()) == [0]
    feed.advance_to(2)
    assert steps_until(worker, probe, 2) == 2


def test_c55_an_empty_batch_is_a_batch(worker: Worker, finish: Finish) -> None:
    seen: list[Any] = []
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        probe = stream.map(lambda batch: batch).inspect(lambda stamp, batch: seen.append((stamp[0], batch))).probe()
    for r in range(2):
        feed.send([])
        feed.send([r])
        feed.advance_to(r + 1)
        steps_until(worker, probe, r + 1)
    feed.close()
    finish(worker)
    assert (seen, probe.done()) == ([(0, []), (0, [0]), (1, []), (1, [1])], True)


def test_a_flat_map_sends_each_and_nothing_concatenated_is_complete(worker: Worker, finish: Finish) -> None:
    seen: list[int] = []

    def twice(context: Any) -> Any:
        context.capabilities[0].drop()

        def step(feed: Any, output: Any) -> None:
            for message, batch in feed.drain():
                output.session(message).give_all([batch, -batch])

        return step

    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        empty: Stream[int] = scope.concatenate([])
        nothing = empty.probe()
        flat = stream.flat_map(lambda n: range(1, n + 1)).concat(empty).unary("twice", twice)
        flat.inspect(lambda _, n: seen.append(n))
    feed.send(2)
    worker.step(), worker.step()
    assert nothing.done()
    feed.close()
    finish(worker)
    assert seen == [1, -1, 2, -2]
