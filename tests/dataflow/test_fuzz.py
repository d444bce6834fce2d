"""Random dataflows on one to three workers under random schedules, watched by an oracle that knows everything (C76).

The oracle looks at what really exists between two steps: the batches in every queue and in the mail, and the
capabilities that operators hold by their own books. It carries them along every path, by definition, and asks of
every frontier that any worker's tracker tells: is anything that can still arrive already said to be over? Mutations
of the protocol show that the oracle would see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.depth import examples

from tidegauge.dataflow import (
    Capability,
    DeterministicCluster,
    InputHandle,
    OperatorBuilder,
    OperatorContext,
    Probe,
    Scope,
    Stream,
    Worker,
)
from tidegauge.dataflow.invocation import Operator
from tidegauge.dataflow.order import advance
from tidegauge.dataflow.progress import Subgraph
from tidegauge.dataflow.reachability import Change
from tidegauge.dataflow.topology import Graph
from tidegauge.dataflow.workers.mailbox import Address, ShuffledMail

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


def graph(shape: Random, random: Random, worker: Worker) -> tuple[list[InputHandle], list[Probe]]:
    """A root scope with a loop, and a nested scope with a loop of its own somewhere in it; exchanges here and there.

    shape: draws the graph, the same on every worker. random: draws what its operators do.
    """

    def anywhere(stream: Stream[Any]) -> Stream[Any]:
        def route(batch: Any, peers: int) -> list[tuple[int, Any]]:
            return [(random.randrange(peers), batch) for _ in range(random.randrange(3))]

        return stream.exchange(route) if shape.random() < 0.4 else stream

    with worker.dataflow("root") as scope:
        inputs, streams = map(
            list, zip(*(scope.input(f"input {n}") for n in range(shape.randint(1, 2))), strict=True)
        )
        handle, again = scope.feedback(shape.randint(1, 2))
        streams.append(again)
        later = lambda t: t + random.randrange(3)  # noqa: E731
        for n in range(shape.randint(1, 4)):
            chosen = shape.sample(streams, shape.randint(1, min(3, len(streams))))
            chosen = [anywhere(stream) for stream in chosen]
            often = shape.random() < 0.7
            streams.append(add(scope, f"op {n}", chosen, erratic(random, later, lambda t: t < 12), notify=often))
            if n == 0:
                with scope.iterative("nested") as inner:
                    back, inner_again = inner.feedback((0, 1))
                    entered = [anywhere(stream.enter(inner)) for stream in shape.sample(streams, shape.randint(1, 2))]
                    turn: Any = lambda t: t[1] < LAST_TURN  # noqa: E731
                    onward: Any = lambda t: (t[0] + random.randrange(2), t[1] + random.randrange(2))  # noqa: E731
                    around = add(inner, "turn", [*entered, inner_again], erratic(random, onward, turn), notify=True)
                    if shape.random() < 0.5:
                        around = around.map(lambda batch: batch)
                    around = anywhere(around)
                    back.connect(around)
                    left = shape.choice([around, entered[0]]).leave()
                streams.append(left)
        handle.connect(add(scope, "tail", [streams[-1]], erratic(random, later, lambda t: t < 12), notify=True))
        probes = [stream.probe() for stream in streams]
    return inputs, probes


# --- the oracle ---

Truth = set[tuple[int, Any]]


def present(copies: Sequence[Subgraph], mail: ShuffledMail) -> Truth:
    """What exists in a scope on all workers, at its locations; a nested scope counts as what it implies outside."""
    found: Truth = set()
    static = copies[0].tracker.graph
    for number, child in copies[0].blueprint.nodes():
        if isinstance(child, Operator):
            for copy in copies:
                found |= {(at, time) for at, time in held_by(copy.children[number], static, number)}
            on_their_way = set(posted(mail, copies[0].address_of(number)))
            fed = static.targets_of(number, 0) if on_their_way else ()
            found |= {(target, time) for target in fed for time in on_their_way}
        else:
            within = nested(copies, number)
            for location, time in present(within, mail):
                if location < child.shape.outputs:  # on its way out: it is for the scope around to count
                    fed = static.targets_of(number, location)
                    found |= {(target, within[0].refinement.to_outer(time)) for target in fed}
                for port, summary in within[0].tracker.graph.to_outputs[location]:
                    result = advance(within[0].order, time, summary)
                    if result is not None:
                        found.add((static.source(number, port), within[0].refinement.to_outer(result)))
    return found


def held_by(child: object, static: Graph, number: int) -> Iterator[tuple[int, Any]]:
    """The batches that wait at an operator, and its capabilities by its own books and those not yet published."""
    assert isinstance(child, Operator)
    for port, feed in enumerate(child.inputs):
        yield from ((static.target(number, port), time) for stamp, _ in feed.queue.messages for time in stamp)
    for port, output in enumerate(child.outputs):
        held = dict(child._held[port])
        for time, delta in output.account.changes.items():
            held[time] = held.get(time, 0) + delta
        times = {time for time, count in held.items() if count > 0} | {t for stamp, _ in output.outbox for t in stamp}
        yield from ((static.source(number, port), time) for time in times)


def posted(mail: ShuffledMail, address: Address) -> Iterator[Any]:
    """The times of the batches that are on their way to the other workers."""
    for lanes in mail._lanes:
        for (_, to), letters in lanes.items():
            if to == address:
                yield from (time for stamp, _ in letters for time in stamp)


def nested(copies: Sequence[Subgraph], number: int) -> list[Subgraph]:
    found = [copy.children[number] for copy in copies]
    return [child for child in found if isinstance(child, Subgraph)]


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


def watch(copies: Sequence[Subgraph], mail: ShuffledMail, entering: Truth = frozenset()) -> None:  # type: ignore[assignment]
    """Raise Premature where any worker's tracker says that something is over which can still arrive."""
    here = {(at, time) for at, time in present(copies, mail) if at >= copies[0].shape.outputs}
    possible = reachable(copies[0], here | entering)
    for location, time in possible:
        for index, copy in enumerate(copies):
            if not copy.tracker.implications[location].less_equal(time):
                raise Premature(f"{copy.path} on worker {index}, location {location}: {time} can still arrive")
    static = copies[0].tracker.graph
    for number, child in copies[0].blueprint.nodes():
        if isinstance(child, Subgraph):
            within: Truth = set()
            for port in range(child.shape.inputs):
                outside = static.target(number, port)
                source = child.tracker.graph.source(0, port)
                within |= {(source, child.refinement.to_inner(t)) for at, t in possible if at == outside}
            watch(nested(copies, number), mail, within)


def play(seed: int, peers: int, mail: type[ShuffledMail] = ShuffledMail) -> None:
    """Run one random dataflow to its end. Raises Premature, or AssertionError when it does not end."""
    random = Random(seed)
    cluster = DeterministicCluster(peers=peers, seed=seed)
    cluster._mail.__class__ = mail
    inputs: list[InputHandle] = []
    probes: list[Probe] = []
    for worker in cluster.workers:
        handles, seen = graph(Random(seed), random, worker)
        inputs.extend(handles)
        probes.extend(seen)
    copies = [worker._dataflows["root"] for worker in cluster.workers]
    open_inputs = list(inputs)

    def step() -> bool:
        try:
            return cluster.step()
        except Exception as error:
            if isinstance(error.__cause__, Premature):
                raise error.__cause__ from None
            raise
        finally:
            watch(copies, cluster._mail)

    watch(copies, cluster._mail)
    for _ in range(60 * peers):
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
    for _ in range(500 * peers):
        if not step():
            break
    else:
        raise AssertionError(f"it hangs: {[str(h) for w in cluster.workers for h in w.explain_stuck()]}")
    assert all(probe.done() for probe in probes)


@pytest.mark.deep
@pytest.mark.parametrize("peers", [1, 2, 3])
def test_c76_no_frontier_is_premature_and_nothing_hangs(peers: int) -> None:
    @settings(
        max_examples=examples(60 // peers),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.integers(0, 2**32))
    def whatever_the_seed(seed: int) -> None:
        play(seed, peers)

    whatever_the_seed()


# --- mutations of the protocol: the oracle must see them ---


def deferring(monkeypatch: pytest.MonkeyPatch, late: Callable[[Subgraph, Change], bool]) -> None:
    """Publish the changes that are `late` one turn after the others of the same invocation."""
    publish, run = Subgraph.publish, Subgraph.run
    waiting: dict[Subgraph, list[Change]] = {}

    def split(self: Subgraph, changes: list[Change], *, tell: bool = True) -> None:
        if not tell:  # of a nested scope, where they were deferred already
            publish(self, changes, tell=False)
            return
        waiting.setdefault(self, []).extend(change for change in changes if late(self, change))
        publish(self, [change for change in changes if not late(self, change)])

    def turn(self: Subgraph) -> list[Change]:
        due = waiting.pop(self, [])
        upward = run(self)
        if due or waiting.get(self):
            self.runtime.activations.soon(self.place)
            self.incomplete = True
        publish(self, due)
        return upward

    monkeypatch.setattr(Subgraph, "publish", split)
    monkeypatch.setattr(Subgraph, "run", turn)


def outcomes(trials: int, peers: int, mail: type[ShuffledMail] = ShuffledMail) -> list[str]:
    return [outcome(seed, peers, mail) for seed in range(trials)]


def outcome(seed: int, peers: int, mail: type[ShuffledMail]) -> str:
    try:
        play(seed, peers, mail)
    except Premature:
        return "premature"
    except AssertionError:
        return "hung"
    return "clean"


@pytest.mark.parametrize("peers", [1, pytest.param(3, marks=pytest.mark.long)])
def test_c76_a_late_increment_is_seen(monkeypatch: pytest.MonkeyPatch, peers: int) -> None:
    deferring(monkeypatch, lambda graph, change: change[2] > 0)
    assert outcomes(12, peers).count("premature") >= 10


@pytest.mark.parametrize("peers", [1, pytest.param(3, marks=pytest.mark.long)])
def test_c76_a_late_produced_is_seen(monkeypatch: pytest.MonkeyPatch, peers: int) -> None:
    deferring(monkeypatch, lambda graph, change: change[2] > 0 and graph.tracker.graph.is_target[change[0]])
    assert outcomes(12, peers).count("premature") >= 10


@pytest.mark.parametrize("peers", [1, pytest.param(3, marks=pytest.mark.long)])
def test_c76_a_late_decrement_is_harmless(monkeypatch: pytest.MonkeyPatch, peers: int) -> None:
    deferring(monkeypatch, lambda graph, change: change[2] < 0)
    assert set(outcomes(12, peers)) == {"clean"}


def test_c76_a_change_published_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Subgraph.publish
    count = iter(range(10**9))

    def twice(self: Subgraph, changes: list[Change], *, tell: bool = True) -> None:
        publish(self, changes * 2 if tell and next(count) % 7 == 3 else changes, tell=tell)

    monkeypatch.setattr(Subgraph, "publish", twice)
    assert outcomes(12, 1).count("clean") < 6


class Splitting(ShuffledMail):
    """Progress is sent in two letters, what grows behind what shrinks."""

    def post(self, sender: int, to: int, address: Address, letter: Any) -> None:
        if isinstance(letter, list):
            super().post(sender, to, address, [change for change in letter if change[2] < 0])
            super().post(sender, to, address, [change for change in letter if change[2] > 0])
        else:
            super().post(sender, to, address, letter)


class Doubling(ShuffledMail):
    """Some progress is sent twice."""

    def post(self, sender: int, to: int, address: Address, letter: Any) -> None:
        super().post(sender, to, address, letter)
        if isinstance(letter, list) and self._random.random() < 0.1:
            super().post(sender, to, address, letter)


class Reordering(ShuffledMail):
    """The letters of a lane overtake each other."""

    def post(self, sender: int, to: int, address: Address, letter: Any) -> None:
        super().post(sender, to, address, letter)
        self._random.shuffle(self._lanes[to][sender, address])


@pytest.mark.parametrize("peers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_c76_progress_sent_in_pieces_is_seen(peers: int) -> None:
    assert outcomes(12, peers, Splitting).count("premature") >= 10


@pytest.mark.parametrize("peers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_c76_progress_sent_twice_is_seen(peers: int) -> None:
    assert outcomes(8, peers, Doubling).count("clean") < 4


def test_c76_progress_out_of_order_is_seen() -> None:
    assert outcomes(12, 3, Reordering).count("clean") < 12
