"""Several workers: what each computes together with the others, and what happens when one of them goes wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataflow.conftest import RunOn
from tests.depth import DEEP, deep

from tidegauge.dataflow import (
    UNIT,
    Barrier,
    Capability,
    DeterministicCluster,
    EventQueue,
    Messages,
    OperatorContext,
    OperatorInput,
    OperatorOutput,
    Sequencer,
    Stash,
    Worker,
    execute,
)
from tidegauge.dataflow.workers.mailbox import PromptMail
from tidegauge.errors.dataflow import GraphsDiffer, InvalidRoute, NotRun, OperatorFailed, Stuck, WorkerStopped


def by_value(batch: Iterable[int], peers: int) -> list[tuple[int, list[int]]]:
    pieces: dict[int, list[int]] = {}
    for value in batch:
        pieces.setdefault(value % peers, []).append(value)
    return list(pieces.items())


def batches(queue: EventQueue) -> list[tuple[Any, Any]]:
    return [(event.stamp[0], event.batch) for event in queue.drain() if isinstance(event, Messages)]


def records(queues: Iterable[EventQueue]) -> list[list[int]]:
    return [sorted(record for _, batch in batches(queue) for record in batch) for queue in queues]


# --- exchanging ---


def test_c69_everything_sent_to_all_workers_is_there_once_for_each(run_on: RunOn) -> None:
    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("unit", order=UNIT) as scope:
            numbers, stream = scope.input("numbers")
            seen = stream.broadcast().capture()
        numbers.send([0, 1, 2, 3, 4])
        numbers.close()
        return seen

    results = records(run_on(build))
    assert results == [sorted([0, 1, 2, 3, 4] * len(results))] * len(results)


def test_c69_a_record_goes_to_the_worker_that_its_value_says(run_on: RunOn) -> None:
    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("numbers") as scope:
            numbers, stream = scope.input("numbers")
            seen = stream.exchange(by_value).capture()
        numbers.send(list(range(6)))
        numbers.close()
        return seen

    results = records(run_on(build))
    peers = len(results)
    assert results == [sorted([x for x in range(6) if x % peers == index] * peers) for index in range(peers)]


def test_c70_each_worker_hears_of_all(run_on: RunOn) -> None:
    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("indexes") as scope:
            mine, stream = scope.input("mine")
            heard = stream.broadcast().capture()
        mine.send([worker.index])
        mine.close()
        return heard

    results = records(run_on(build))
    assert results == [list(range(len(results)))] * len(results)


def test_c67_distinct_values(run_on: RunOn) -> None:
    def distinct(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()
        seen: set[int] = set()

        def step(inlet: OperatorInput, output: OperatorOutput) -> None:
            for capability, batch in inlet.drain():
                fresh = [x for x in dict.fromkeys(batch) if x not in seen]
                seen.update(fresh)
                output.give(capability, fresh)

        return step

    lists = {0: [0, 1, 2, 2, 2, 3, 3, 4], 1: [0, 0, 1, 3, 4, 4, 5, 7, 7]}

    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("distinct") as scope:
            numbers, stream = scope.input("numbers")
            seen = stream.exchange(by_value).unary("distinct", distinct).capture()
        numbers.send(lists.get(worker.index, []))
        numbers.close()
        return seen

    results = records(run_on(build))
    assert (
        results
        == {
            1: [[0, 1, 2, 3, 4]],
            2: [[0, 2, 4], [1, 3, 5, 7]],
            3: [[0, 3], [1, 4, 7], [2, 5]],
        }[len(results)]
    )


def test_a_frontier_is_everyones(run_on: RunOn) -> None:
    """A worker's probe passes a time when no worker can send anything at it any more."""

    def build(worker: Worker) -> list[Any]:
        with worker.dataflow("rounds") as scope:
            numbers, stream = scope.input("numbers")
            seen: list[Any] = []
            stream.exchange(by_value).unary("sums", sums(seen))
        for t in range(5):
            numbers.advance_to(t)
            numbers.send([t, t + 1, worker.index])
        numbers.close()
        return seen

    def sums(seen: list[Any]) -> Any:
        def make(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
            context.capabilities[0].drop()
            stash: Stash[Counter[int]] = Stash(Counter)

            def step(inlet: OperatorInput, _output: OperatorOutput) -> None:
                for message, batch in inlet.drain():
                    stash.at(message.time, message.retain).update(batch)
                for capability, total in stash.ready([inlet.frontier]):
                    seen.append((capability.time, dict(total)))
                    capability.drop()

            return step

        return make

    results = run_on(build)
    peers = len(results)
    for index, seen in enumerate(results):
        assert [t for t, _ in seen] == sorted({t for t, _ in seen}), "each time is complete once"
        for t, total in seen:
            everything = Counter([t, t + 1] * peers + list(range(peers)))
            assert total == {x: n for x, n in everything.items() if x % peers == index}


# --- loops and scopes over several workers ---


def test_c54_a_barrier_of_frontiers_alone(run_on: RunOn) -> None:
    """A loop without batches: each time is complete once it is for all, one at a time."""
    last = 100

    def build(worker: Worker) -> list[list[int]]:
        calls: list[list[int]] = []

        def barrier(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
            first = context.capabilities[0]
            stash: Stash[None] = Stash(lambda: None)
            stash.at(0, first.clone)
            stash.at(1, lambda: first.delayed(1))
            first.drop()

            def step(inlet: OperatorInput, _output: OperatorOutput) -> None:
                calls.append([])
                for capability, _ in stash.ready([inlet.frontier]):
                    calls[-1].append(capability.time)
                    if capability.time + 1 < last:
                        stash.at(capability.time + 1, lambda held=capability: held.delayed(held.time + 1))  # type: ignore[misc]
                    capability.drop()

            return step

        with worker.dataflow("barrier") as scope:
            handle, again = scope.feedback(1)
            handle.connect(again.unary("barrier", barrier))
        return calls

    for calls in run_on(build):
        assert max(map(len, calls)) == 1
        assert [t for call in calls for t in call] == list(range(last))


def test_c55_an_empty_batch_before_the_real_one(run_on: RunOn) -> None:
    def build(worker: Worker) -> Any:
        with worker.dataflow("rounds") as scope:
            numbers, stream = scope.input("numbers")
            probe = stream.exchange(by_value).map(list).exchange(by_value).probe()
        for t in range(2):
            numbers.send([])
            numbers.send([t, t + 1])
            numbers.advance_to(t + 1)
        numbers.close()
        return probe

    assert all(probe.done() for probe in run_on(build))


def test_c56_batches_pass_through_empty_regions(run_on: RunOn) -> None:
    def build(worker: Worker) -> Any:
        with worker.dataflow("regions") as scope:
            numbers, stream = scope.input("numbers")
            with scope.region("outer") as outer:
                entered = stream.exchange(by_value).enter(outer)
                with outer.region("inner") as inner:
                    left = entered.enter(inner).leave()
                through = left.leave()
            seen, probe = through.capture(), through.probe()
        for t in range(10):
            numbers.send([t])
            numbers.advance_to(t + 1)
        numbers.close()
        return seen, probe

    results = run_on(build)
    assert all(probe.done() for _, probe in results)
    everything = sorted(x for seen, _ in results for _, batch in batches(seen) for x in batch)
    assert everything == sorted(list(range(10)) * len(results))


def test_c62_ping_pong(run_on: RunOn) -> None:
    """Three numbers go ten times round, one worker further each time."""
    rounds = 10

    def build(worker: Worker) -> Any:
        turns: list[int] = []

        def onward(batch: list[int]) -> list[int]:
            turns.extend(batch)
            return [x + 1 for x in batch]

        with worker.dataflow("ping pong") as scope:
            start, stream = scope.input("start")
            handle, again = scope.feedback(1)
            here = stream.concat(again).exchange(by_value).unary("split", split(rounds))
            handle.connect(here.filter(lambda piece: piece[0]).map(lambda piece: onward(piece[1])))
            seen = here.filter(lambda piece: not piece[0]).map(lambda piece: piece[1]).capture()
        if worker.index == 0:
            start.send([1, 2, 3])
        start.close()
        return turns, seen

    def split(limit: int) -> Any:
        def make(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
            context.capabilities[0].drop()

            def step(inlet: OperatorInput, output: OperatorOutput) -> None:
                for message, batch in inlet.drain():
                    output.give(message, (message.time < limit, batch))

            return step

        return make

    results = run_on(build)
    assert sum(len(turns) for turns, _ in results) == 30
    exits = sorted((t, x) for _, seen in results for t, batch in batches(seen) for x in batch)
    assert exits == [(10, 11), (10, 12), (10, 13)]


def test_c58_what_circulates_is_seen_once_at_each_time(run_on: RunOn) -> None:
    def build(worker: Worker) -> Counter[int]:
        seen: Counter[int] = Counter()
        with worker.dataflow("circle") as scope:
            numbers, stream = scope.input("numbers")
            handle, again = scope.feedback(1)
            around = stream.concat(again).exchange(by_value)
            around = around.inspect(lambda stamp, batch: seen.update({stamp[0]: len(batch)}))
            handle.connect(
                around.branch(lambda stamp, _: stamp[0] < 100)[1].map(lambda batch: [x + 1 for x in batch])
            )
        numbers.send(list(range(10)) if worker.index == 0 else [])
        numbers.close()
        return seen

    assert sum(run_on(build), Counter()) == dict.fromkeys(range(101), 10)


def test_c59_collatz(run_on: RunOn) -> None:
    def build(worker: Worker) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        with worker.dataflow("collatz") as scope:
            numbers, stream = scope.input("numbers")
            handle, again = scope.feedback(1)
            mapped = stream.concat(again).exchange(by_value).map(lambda batch: [collatz(n) for n in batch])
            mapped = mapped.inspect(lambda stamp, batch: seen.extend((stamp[0], n) for n in batch))
            handle.connect(mapped.map(lambda batch: [n for n in batch if n > 1]).filter(bool))
        numbers.send(list(range(1 + worker.index, 10, worker.peers)))
        numbers.close()
        return seen

    def collatz(n: int) -> int:
        return n // 2 if n % 2 == 0 else 3 * n + 1

    seen = [each for results in run_on(build) for each in results]
    assert (len(seen), max(t for t, _ in seen), max(n for _, n in seen)) == (64, 18, 52)


def test_c73_two_nested_loops(run_on: RunOn) -> None:
    """Each loop makes one turn more; in each turn the batch changes the worker."""

    def elsewhere(batch: list[int], peers: int) -> list[tuple[int, list[int]]]:
        return [((batch[0] + 1) % peers, [batch[0] + 1])]

    def build(worker: Worker) -> Any:
        times: list[Any] = []
        with worker.dataflow("root") as scope:
            numbers, stream = scope.input("numbers")
            with scope.iterative("outer") as outer:
                outer_handle, outer_again = outer.feedback((0, 1))
                with outer.iterative("inner") as inner:
                    inner_handle, inner_again = inner.feedback((None, 1))
                    here = stream.enter(outer).concat(outer_again).enter(inner).concat(inner_again)
                    here = here.exchange(elsewhere).inspect(lambda stamp, _: times.append(stamp[0]))
                    done, more = here.branch(lambda stamp, _: stamp[0][1] < 1)
                    inner_handle.connect(more)
                    left = done.leave()
                done, more = left.branch(lambda stamp, _: stamp[0][1] < 1)
                outer_handle.connect(more)
                result = done.leave()
            seen, probe = result.capture(), result.probe()
        if worker.index == 0:
            numbers.send([0])
        numbers.close()
        return times, seen, probe

    results = run_on(build)
    times = sorted(t for times, _, _ in results for t in times)
    assert times == [((0, 0), 0), ((0, 0), 1), ((0, 1), 0), ((0, 1), 1)]
    turns = 4 if len(results) > 1 else 0  # alone, nothing is routed
    assert [x for _, seen, _ in results for x in batches(seen)] == [(0, [turns])]
    assert all(probe.done() for _, _, probe in results)


@pytest.mark.parametrize(("captured", "replayed"), [(1, 3), (2, 2), (3, 1), (3, 2)])
def test_c50_captured_on_some_workers_replayed_on_others(captured: int, replayed: int) -> None:
    """Each stream is replayed by one worker; some replay several, or none."""

    def capture(worker: Worker) -> EventQueue:
        with worker.dataflow("capture") as scope:
            numbers, stream = scope.input("numbers")
            queue = stream.exchange(by_value).capture()
        for t in range(4):
            numbers.advance_to(t)
            numbers.send([t, t + 1, t + 2])
        numbers.close()
        return queue

    queues = DeterministicCluster(peers=captured, seed=1).run(capture)

    def replay(worker: Worker) -> Any:
        seen: list[Any] = []
        with worker.dataflow("replay") as scope:
            stream = scope.replay(*queues[worker.index :: worker.peers])
            probe = (
                stream.exchange(by_value)
                .inspect(lambda stamp, batch: seen.extend((stamp[0], x) for x in batch))
                .probe()
            )
        return seen, probe

    results = DeterministicCluster(peers=replayed, seed=2).run(replay)
    assert all(probe.done() for _, probe in results)
    for index, (seen, _) in enumerate(results):
        assert replayed == 1 or {x % replayed for _, x in seen} <= {index}
    everything = Counter(each for seen, _ in results for each in seen)
    assert everything == Counter([(t, t + n) for t in range(4) for n in range(3)] * captured)


@pytest.mark.parametrize("peers", [1, 2, 3])
def test_c45_a_probe_follows_ten_rounds(peers: int) -> None:
    """Each worker waits for the round to be complete everywhere before it sends the next one."""

    def build(worker: Worker) -> list[Any]:
        with worker.dataflow("rounds") as scope:
            numbers, stream = scope.input("numbers")
            seen: list[Any] = []
            probe = (
                stream.exchange(by_value)
                .inspect(lambda stamp, batch: seen.extend((stamp[0], x) for x in batch))
                .probe()
            )
        for t in range(10):
            assert probe.less_equal(t)
            assert not probe.done()
            numbers.send(list(range(worker.peers)))
            numbers.advance_to(t + 1)
            while probe.less_than(t + 1):
                worker.step_or_park(None)
            assert sorted(x for at, x in seen if at == t) == [worker.index] * worker.peers, "all of the round is here"
        numbers.close()
        return seen

    assert [len(seen) for seen in execute(build, peers=peers, validate=True)] == [10 * peers] * peers


@pytest.mark.parametrize("where", ["loop", "region"])
def test_c74_batches_that_die_inside_do_not_hold_the_round(run_on: RunOn, where: str) -> None:
    def build(worker: Worker) -> Any:
        with worker.dataflow("rounds") as scope:
            numbers, stream = scope.input("numbers")
            if where == "loop":
                with scope.iterative("inner") as inner:
                    handle, again = inner.feedback((0, 1))
                    around = stream.enter(inner).concat(again).exchange(by_value)
                    around = around.map(lambda batch: [x - 1 for x in batch if x]).filter(bool)
                    handle.connect(around)
                    left = around.filter(lambda batch: False).leave()
            else:
                with scope.region("inner") as inner:
                    left = stream.enter(inner).exchange(by_value).filter(lambda batch: False).leave()
            probe = left.probe()
        for t in range(5):
            numbers.send([t, t + 1, t + 2])
            numbers.advance_to(t + 1)
        numbers.close()
        return probe

    assert all(probe.done() for probe in run_on(build))


# --- synchronisation ---


def test_c71_all_workers_read_one_sequence(run_on: RunOn) -> None:
    def build(worker: Worker) -> Sequencer:
        sequencer = Sequencer(worker)
        for n in range(3):
            sequencer.push((worker.index, n))
        sequencer.close()
        return sequencer

    sequences = [sequencer.take() for sequencer in run_on(build)]
    assert all(sequence == sequences[0] for sequence in sequences)
    assert sorted(sequences[0]) == [(w, n) for w in range(len(sequences)) for n in range(3)]
    for worker in range(len(sequences)):
        assert [n for w, n in sequences[0] if w == worker] == [0, 1, 2], "as each pushed them"


@given(st.integers(0, 2**32))
@deep(30)
def test_c71_whatever_is_pushed_when_there_is_one_sequence(seed: int) -> None:
    random = Random(seed)
    cluster = DeterministicCluster(peers=3, seed=seed)
    sequencers = [Sequencer(worker) for worker in cluster.workers]
    taken: list[list[Any]] = [[], [], []]
    pushed = [0, 0, 0]
    for _ in range(60):
        chosen = random.randrange(9)
        if chosen < 3:
            sequencers[chosen].push((chosen, pushed[chosen]))
            pushed[chosen] += 1
        else:
            cluster.step()
        for mine, sequencer in zip(taken, sequencers, strict=True):
            mine.extend(sequencer.take())
            assert mine == max(taken, key=len)[: len(mine)], "one is a prefix of the other at any time"
    for sequencer in sequencers:
        sequencer.close()
    while cluster.step():
        pass
    for mine, sequencer in zip(taken, sequencers, strict=True):
        mine.extend(sequencer.take())
    assert taken[0] == taken[1] == taken[2]
    assert len(taken[0]) == sum(pushed)


def test_c71_a_sequence_goes_on_while_only_one_pushes() -> None:
    cluster = DeterministicCluster(peers=3, seed=4)
    sequencers = [Sequencer(worker) for worker in cluster.workers]
    for n in range(5):
        sequencers[1].push(n)
        cluster.settle()
        assert [sequencer.take() for sequencer in sequencers] == [[n]] * 3
    for sequencer in sequencers:
        sequencer.close()
    while cluster.step():
        pass


@pytest.mark.parametrize("peers", [1, 2, 3])
def test_nobody_passes_a_barrier_before_all_have_come(peers: int) -> None:
    come: list[int] = []

    def build(worker: Worker) -> list[int]:
        barrier = Barrier(worker)
        seen = []
        for turn in range(20):
            come.append(turn)
            barrier.wait()
            seen.append(come.count(turn))
        barrier.close()
        return seen

    assert execute(build, peers=peers, validate=True) == [[peers] * 20] * peers


# --- what goes wrong ---


def test_an_error_on_one_worker_stops_all_and_is_raised() -> None:
    def build(worker: Worker) -> None:
        with worker.dataflow("fragile") as scope:
            numbers, stream = scope.input("numbers")
            stream.exchange(by_value).map(lambda batch: [1 // x for x in batch], name="divide")
        numbers.send([worker.index - 1])  # the input stays open: without the error nobody would ever stop

    with pytest.raises(OperatorFailed, match="fragile/divide") as caught:
        execute(build, peers=3)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_while_building_stops_all() -> None:
    def build(worker: Worker) -> None:
        with worker.dataflow("shop") as scope:
            scope.input("orders")
        if worker.index == 1:
            raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table"):
        execute(build, peers=2)


class Ebb(Exception):
    """What the workers here raise."""


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("waiting", ["at a barrier", "for a probe"])
def test_an_error_reaches_a_worker_that_waits_while_it_builds(failing: int, waiting: str) -> None:
    def build(worker: Worker) -> None:
        barrier = Barrier(worker)
        with worker.dataflow("numbers") as scope:
            numbers, stream = scope.input("numbers")
            probe = stream.broadcast().probe()
        if worker.index == failing:
            raise Ebb
        if waiting == "at a barrier":
            barrier.wait()
        numbers.close()
        while not probe.done():
            worker.step_or_park(None)

    with pytest.raises(Ebb):
        execute(build, peers=2)


INTERRUPTED = """
import sys
from tidegauge.dataflow import Barrier
from tidegauge.dataflow import execute

def build(worker):
    barrier = Barrier(worker)
    if {where!r} == "at a barrier":
        if worker.index == 0:
            print("ready", flush=True)
            barrier.wait()
        return
    with worker.dataflow("open") as scope:
        scope.input("never closed")
    if {where!r} == "in the others" and worker.index == 0:
        worker.drop_dataflow("open"); barrier.close(); worker.drop_dataflow("barrier")
    if worker.index == 0:
        print("ready", flush=True)

execute(build, peers=3)
"""


@pytest.mark.deep
@pytest.mark.parametrize("where", ["at a barrier", "in all", "in the others"])
def test_ctrl_c_ends_workers_wherever_they_wait(where: str) -> None:
    """Also when it comes right before a sleep, or while somebody is woken."""
    for _ in range(40 if DEEP else 1):
        interrupt(INTERRUPTED.format(where=where))


def interrupt(code: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=30)
    finally:
        program.kill()
    assert "KeyboardInterrupt" in said
    assert program.returncode != 0


def test_a_worker_that_was_stopped_says_so_and_stops_sleeping() -> None:
    worker = Worker()
    with worker.dataflow("open") as scope:
        scope.input("never closed")
    worker.settle()
    stopping = threading.Timer(0.05, worker.stop)
    stopping.start()
    with pytest.raises(WorkerStopped, match="TG-0750"):  # noqa: PT012
        while True:
            worker.step_or_park(None)
    stopping.join()


def test_a_build_of_which_nothing_has_run_is_refused() -> None:
    def build(worker: Worker) -> Iterator[None]:
        yield

    with pytest.raises(NotRun, match="build returned a generator"):
        execute(build, peers=2)
    with pytest.raises(NotRun):
        DeterministicCluster(peers=2, seed=1).run(build)


@pytest.mark.parametrize("peer", [1.0, "1", None])
def test_a_route_to_what_is_no_number_is_refused_and_the_worker_goes_on(peer: Any) -> None:
    cluster = DeterministicCluster(peers=2, seed=1)
    beside = []
    for worker in cluster.workers:
        with worker.dataflow("lost") as scope:
            numbers, stream = scope.input("numbers")
            stream.exchange(lambda batch, peers: [(peer, batch)]).probe()
            beside.append(stream.probe())
        numbers.send(worker.index)
        numbers.close()
    causes = []
    while not cluster.idle:
        try:
            cluster.step()
        except OperatorFailed as failed:
            causes.append(type(failed.__cause__))
    assert causes == [InvalidRoute, InvalidRoute]
    assert all(probe.done() for probe in beside)


def test_a_route_may_give_numbers_of_any_integer_type() -> None:
    class Peer:
        def __index__(self) -> int:
            return 1

    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("routed") as scope:
            numbers, stream = scope.input("numbers")
            seen = stream.exchange(lambda batch, peers: [(Peer(), batch)]).capture()
        numbers.send([worker.index])
        numbers.close()
        return seen

    assert records(DeterministicCluster(peers=2, seed=1).run(build)) == [[], [0, 1]]


@pytest.mark.parametrize("peer", [-1, 2])
def test_a_route_to_nobody_is_refused_and_nothing_was_sent(peer: int) -> None:
    cluster = DeterministicCluster(peers=2, seed=0)
    queues = []
    for worker in cluster.workers:
        with worker.dataflow("numbers") as scope:
            numbers, stream = scope.input("numbers")
            queues.append(stream.exchange(lambda batch, peers: [(0, batch), (peer, batch)]).capture())
        if worker.index == 1:
            numbers.send([1])
    with pytest.raises(OperatorFailed) as caught:
        cluster.settle()
    assert isinstance(caught.value.__cause__, InvalidRoute)
    cluster.settle()
    assert records(queues) == [[], []]


def test_different_dataflows_of_one_name_are_refused() -> None:
    def build(worker: Worker) -> None:
        with worker.dataflow("shop") as scope:
            _, stream = scope.input("orders")
            if worker.index == 1:
                stream = stream.map(lambda batch: batch, name="extra")
            stream.probe()

    with pytest.raises(GraphsDiffer, match="shop/extra"):
        execute(build, peers=2)


def test_a_worker_may_build_later_than_its_peers() -> None:
    cluster = DeterministicCluster(peers=2, seed=2)

    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("numbers") as scope:
            numbers, stream = scope.input("numbers")
            seen = stream.exchange(by_value).capture()
        numbers.send([0, 1])
        numbers.close()
        return seen

    first = build(cluster.workers[0])
    cluster.settle()
    second = build(cluster.workers[1])
    while cluster.step():
        pass
    assert records([first, second]) == [[0, 0], [1, 1]]


@pytest.mark.parametrize("seed", range(10))
def test_a_second_dataflow_of_a_name_gets_none_of_the_firsts_letters(seed: int) -> None:
    cluster = DeterministicCluster(peers=2, seed=seed)

    def build(worker: Worker, batch: list[int]) -> EventQueue:
        with worker.dataflow("numbers") as scope:
            numbers, stream = scope.input("numbers")
            seen = stream.exchange(by_value).capture()
        numbers.send(batch)
        numbers.close()
        return seen

    build(cluster.workers[0], [1, 1])
    build(cluster.workers[1], [0, 0])
    for _ in range(3):
        cluster.step()  # some letters are on their way
    for worker in cluster.workers:
        if worker.dataflows:
            worker.drop_dataflow("numbers")
    seen = [build(worker, [2, 3]) for worker in cluster.workers]
    while cluster.step():
        pass
    assert records(seen) == [[2, 2], [3, 3]]


def test_no_letter_is_missed_that_comes_while_a_worker_looks() -> None:
    """A letter that comes just after the box was emptied ends the parking that follows."""

    class Racing(PromptMail):
        def take(self, worker: int) -> list[Any]:
            letters = super().take(worker)
            if worker == 1 and self.late:
                address, letter = self.late.pop()
                self.post(0, 1, address, letter)
            return letters

        late: list[Any]

    mail = Racing(2)
    mail.late = []
    workers = [Worker(time.monotonic, index=index, mail=mail) for index in range(2)]
    seen = []
    for worker in workers:
        with worker.dataflow("numbers") as scope:
            _, stream = scope.input("numbers")
            seen.append(stream.exchange(by_value).capture())
    for _ in range(5):
        workers[0].step(), workers[1].step()
    mail.late.append((("numbers", 0, (2,)), ((0,), [1])))  # the second node is the exchange
    began = time.monotonic()
    workers[1].step_or_park(60.0)
    assert time.monotonic() - began < 30
    workers[1].step(), workers[1].step()
    assert records(seen)[1] == [1]


def test_a_worker_that_drops_a_dataflow_holds_the_others_frontier() -> None:
    cluster = DeterministicCluster(peers=2, seed=2)
    probes, inputs = [], []
    for worker in cluster.workers:
        with worker.dataflow("numbers") as scope:
            numbers, stream = scope.input("numbers")
            probes.append(stream.exchange(by_value).probe())
        inputs.append(numbers)
    cluster.settle()
    cluster.workers[0].drop_dataflow("numbers")
    inputs[1].close()
    cluster.settle()
    assert not probes[1].done(), "what the dropped copy held it holds for good"


def test_a_dataflow_that_cannot_go_on_is_said_to_be_stuck() -> None:
    def build(worker: Worker) -> Any:
        with worker.dataflow("shop") as scope:
            orders, stream = scope.input("orders")
            stream.probe()
        return orders

    with pytest.raises(Stuck, match="shop/orders"):
        DeterministicCluster(peers=2, seed=0).run(build)


# --- the scheduler ---


def test_the_same_seed_gives_the_same_interleaving() -> None:
    def interleaving(seed: int) -> list[Any]:
        seen: list[Any] = []

        def build(worker: Worker) -> None:
            with worker.dataflow("numbers") as scope:
                numbers, stream = scope.input("numbers")
                stream.exchange(by_value).inspect(lambda stamp, batch: seen.append((worker.index, stamp, batch)))
            for t in range(5):
                numbers.advance_to(t)
                numbers.send(list(range(4)))
            numbers.close()

        DeterministicCluster(peers=3, seed=seed).run(build)
        return seen

    assert interleaving(1) == interleaving(1)
    assert len({repr(interleaving(seed)) for seed in range(8)}) > 4


def test_virtual_time_passes_when_there_is_nothing_to_do() -> None:
    cluster = DeterministicCluster(peers=2, seed=0)
    ticks: list[tuple[int, float]] = []

    def build(worker: Worker) -> None:
        def clock(context: OperatorContext) -> Callable[[OperatorOutput], None]:
            held: Capability = context.capabilities[0]

            def step(output: OperatorOutput) -> None:
                ticks.append((worker.index, cluster.monotonic()))
                if held.time == 2:
                    held.drop()
                else:
                    held.downgrade(held.time + 1)
                    context.activator.activate_after(3600.0)

            return step

        with worker.dataflow("clock") as scope:
            scope.source("ticks", clock)

    cluster.run(build)
    assert sorted(ticks) == [(worker, hour * 3600.0) for worker in range(2) for hour in range(3)]


def test_idle_workers_use_no_processor_and_hear_of_each_other() -> None:
    """All but the first wait for what the first sends; while it waits, nobody runs."""
    used: dict[int, float] = {}
    go = threading.Event()

    def build(worker: Worker) -> EventQueue:
        with worker.dataflow("numbers") as scope:
            numbers, stream = scope.input("numbers")
            seen = stream.exchange(by_value).capture()
        if worker.index:
            numbers.close()
            began = time.thread_time()
            while worker.step_or_park(None):
                pass
            used[worker.index] = time.thread_time() - began
        else:
            for _ in range(20):
                worker.step()
            go.wait(0.5)  # nobody sets it: it is the time in which nothing may happen
            numbers.send([0, 1, 2])
            numbers.close()
        return seen

    results = records(execute(build, peers=3))
    assert results == [[0], [1], [2]]
    assert max(used.values()) < 0.25
