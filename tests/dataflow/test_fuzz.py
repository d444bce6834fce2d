"""Random dataflows under random schedules, watched by an oracle that knows everything (C76 for one worker).

The oracle looks at what really exists between two steps: the batches in every queue, and the capabilities that
operators hold by their own books. It carries them along every path, by definition, and asks of every frontier the
tracker tells: is anything that can still arrive already said to be over? Mutations of the protocol show that the
oracle would see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegauge.dataflow import Capability, InputHandle, OperatorBuilder, OperatorContext, Probe, Scope, Stream, Worker
from tidegauge.dataflow.invocation import Operator
from tidegauge.dataflow.order import advance
from tidegauge.dataflow.progress import Subgraph
from tidegauge.dataflow.reachability import Change

LAST_TURN = 3


class Premature(AssertionError):
    """A frontier passed something that can still arrive."""


# --- random operators ---


def erratic(random: Random, later: Callable[[Any], Any], open_to: Callable[[Any], bool]) -> Any:
    """An operator that takes some of what waits, sends some at once and some later and at a later time.

    It also refuses to see a batch at a time that its frontier once said was over.
    """

    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()
        kept: list[Capability] = []

        def step(inputs: Any, outputs: Any) -> None:
            for feed in inputs:
                for message, batch in feed.drain():
                    if not feed.frontier.less_equal(message.time):
                        raise Premature(f"{context.path}: {message.time} is over, says {feed.frontier}")
                    choice = random.randrange(5)
                    if not open_to(message.time) or random.random() < 0.35:
                        continue
                    if choice < 2:
                        outputs[0].give(message, batch)
                    elif choice == 2:
                        kept.append(message.retain())
                    elif choice == 3:
                        kept.append(message.delayed(later(message.time)))
                    if random.random() < 0.3:
                        break
            random.shuffle(kept)
            while kept and random.random() < 0.5:
                held = kept.pop()
                if random.random() < 0.3:
                    held.downgrade(later(held.time))
                outputs[0].give(held, "kept")
                held.drop()
            if kept or any(len(feed) for feed in inputs):
                context.activator.activate()

        return step

    return build


def add(scope: Scope, name: str, streams: list[Stream[Any]], build: Any, *, notify: bool) -> Stream[Any]:
    builder = OperatorBuilder(scope, name)
    for stream in streams:
        builder.input(stream)
    out = builder.output()
    builder.build(build, notify=notify)
    return out


def graph(random: Random, worker: Worker) -> tuple[list[InputHandle], list[Probe]]:
    """A root scope with a loop, and a nested scope with a loop of its own somewhere in it."""
    with worker.dataflow("root") as scope:
        inputs, streams = map(
            list, zip(*(scope.input(f"input {n}") for n in range(random.randint(1, 2))), strict=True)
        )
        handle, again = scope.feedback(random.randint(1, 2))
        streams.append(again)
        later = lambda t: t + random.randrange(3)  # noqa: E731
        for n in range(random.randint(1, 4)):
            chosen = random.sample(streams, random.randint(1, min(3, len(streams))))
            streams.append(
                add(scope, f"op {n}", chosen, erratic(random, later, lambda t: t < 12), notify=random.random() < 0.7)
            )
            if n == 0:
                with scope.iterative("nested") as inner:
                    back, inner_again = inner.feedback((0, 1))
                    entered = [stream.enter(inner) for stream in random.sample(streams, random.randint(1, 2))]
                    turn: Any = lambda t: t[1] < LAST_TURN  # noqa: E731
                    onward: Any = lambda t: (t[0] + random.randrange(2), t[1] + random.randrange(2))  # noqa: E731
                    around = add(inner, "turn", [*entered, inner_again], erratic(random, onward, turn), notify=True)
                    if random.random() < 0.5:
                        around = around.map(lambda batch: batch)
                    back.connect(around)
                    left = random.choice([around, entered[0]]).leave()
                streams.append(left)
        handle.connect(add(scope, "tail", [streams[-1]], erratic(random, later, lambda t: t < 12), notify=True))
        probes = [stream.probe() for stream in streams]
    return inputs, probes


# --- the oracle ---

Truth = set[tuple[int, Any]]


def present(graph: Subgraph) -> Truth:
    """What exists in a scope, at its locations; a nested scope counts as what it implies for its outputs."""
    found: Truth = set()
    static = graph.tracker.graph
    for number, child in graph.nodes():
        if isinstance(child, Operator):
            for port, feed in enumerate(child.inputs):
                found |= {(static.target(number, port), t) for stamp, _ in feed.queue.messages for t in stamp}
            for port, output in enumerate(child.outputs):
                held = dict(child._held[port])
                for time, delta in output.account.changes.items():
                    held[time] = held.get(time, 0) + delta
                times = {time for time, count in held.items() if count > 0}
                times |= {time for stamp, _ in output.outbox for time in stamp}
                found |= {(static.source(number, port), time) for time in times}
        else:
            assert isinstance(child, Subgraph)
            for location, time in present(child):
                for port, summary in child.tracker.graph.to_outputs[location]:
                    result = advance(child.order, time, summary)
                    if result is not None:
                        found.add((static.source(number, port), child.refinement.to_outer(result)))
    return found


def reachable(graph: Subgraph, start: Truth) -> Truth:
    """Everything that may still be, by definition; times beyond what the operators ever send do not matter."""
    seen: Truth = set()
    work = list(start)
    while work:
        location, time = work.pop()
        if (location, time) not in seen and (time if isinstance(time, int) else sum(time)) < 20:
            seen.add((location, time))
            for to, summary in graph.tracker.graph.following[location]:
                result = advance(graph.order, time, summary)
                if result is not None:
                    work.append((to, result))
    return seen


def watch(graph: Subgraph, entering: Truth = frozenset()) -> None:  # type: ignore[assignment]
    """Raise Premature where the tracker says that something is over which can still arrive."""
    possible = reachable(graph, present(graph) | entering)
    for location, time in possible:
        if not graph.tracker.implications[location].less_equal(time):
            raise Premature(f"{graph.path}, location {location}: {time} can still arrive")
    static = graph.tracker.graph
    for number, child in graph.nodes():
        if isinstance(child, Subgraph):
            within: Truth = set()
            for port in range(child.shape.inputs):
                here = static.target(number, port)
                source = child.tracker.graph.source(0, port)
                within |= {(source, child.refinement.to_inner(t)) for at, t in possible if at == here}
            watch(child, within)


def play(random: Random) -> None:
    """Run one random dataflow to its end. Raises Premature, or AssertionError when it does not end."""
    worker = Worker(lambda: 0.0, validate=True)
    inputs, probes = graph(random, worker)
    root = worker._dataflows["root"]
    open_inputs = list(inputs)

    def step() -> bool:
        try:
            return worker.step()
        except Exception as error:
            if isinstance(error.__cause__, Premature):
                raise error.__cause__ from None
            raise
        finally:
            watch(root)

    watch(root)
    for _ in range(60):
        choice = random.randrange(6)
        if open_inputs and choice < 2:
            random.choice(open_inputs).send("batch")
        elif open_inputs and choice == 2:
            chosen = random.choice(open_inputs)
            chosen.advance_to(chosen.time + random.randrange(3))
        elif open_inputs and choice == 3 and random.random() < 0.1:
            open_inputs.remove(chosen := random.choice(open_inputs))
            chosen.close()
        else:
            step()
    for handle in inputs:
        handle.close()
    for _ in range(3000):
        if not step():
            break
    else:
        raise AssertionError(f"it hangs: {[str(holder) for holder in worker.explain_stuck()]}")
    assert all(probe.done() for probe in probes)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.integers(0, 2**32))
def test_c76_no_frontier_is_premature_and_nothing_hangs(seed: int) -> None:
    play(Random(seed))


# --- mutations of the protocol: the oracle must see them ---


def deferring(monkeypatch: pytest.MonkeyPatch, late: Callable[[Subgraph, Change], bool]) -> None:
    """Publish the changes that are `late` one turn after the others of the same invocation."""
    publish, run = Subgraph.publish, Subgraph.run
    waiting: dict[Subgraph, list[Change]] = {}

    def split(self: Subgraph, changes: list[Change]) -> None:
        waiting.setdefault(self, []).extend(change for change in changes if late(self, change))
        publish(self, [change for change in changes if not late(self, change)])

    def turn(self: Subgraph) -> list[Change]:
        due = waiting.pop(self, [])
        upward = run(self)
        if due or waiting.get(self):
            self.activations.soon(self.place)
            self.incomplete = True
        publish(self, due)
        return upward

    monkeypatch.setattr(Subgraph, "publish", split)
    monkeypatch.setattr(Subgraph, "run", turn)


def outcomes(trials: int) -> Iterator[str]:
    for seed in range(trials):
        try:
            play(Random(seed))
        except Premature:
            yield "premature"
        except AssertionError:
            yield "hung"
        else:
            yield "clean"


def test_c76_a_late_increment_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    deferring(monkeypatch, lambda graph, change: change[2] > 0)
    assert list(outcomes(12)).count("premature") >= 10


def test_c76_a_late_produced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    deferring(monkeypatch, lambda graph, change: change[2] > 0 and graph.tracker.graph.is_target[change[0]])
    assert list(outcomes(12)).count("premature") >= 10


def test_c76_a_late_decrement_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    deferring(monkeypatch, lambda graph, change: change[2] < 0)
    assert set(outcomes(12)) == {"clean"}


def test_c76_a_change_published_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Subgraph.publish
    count = iter(range(10**9))

    def twice(self: Subgraph, changes: list[Change]) -> None:
        publish(self, changes * 2 if changes and next(count) % 7 == 3 else changes)

    monkeypatch.setattr(Subgraph, "publish", twice)
    assert list(outcomes(12)).count("clean") < 6
