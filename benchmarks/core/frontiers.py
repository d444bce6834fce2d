"""What it costs that time goes on: a frontier's advance, also a wide one's, many batches at one time, the turns of a
loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from benchmarks.core.timing import per, seconds
from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.dataflow import (
    INT,
    PARTITIONED,
    Antichain,
    CapabilitySet,
    InputHandle,
    MutableAntichain,
    Order,
    Probe,
    Product,
    Worker,
)

__all__ = ["measure"]

_ORDERS: Final[tuple[tuple[str, Order[Any], Callable[[int], Any]], ...]] = (
    ("total", INT, lambda epoch: epoch),
    ("partial", Product(INT, INT), lambda epoch: (epoch, epoch)),
)
"""An order of each kind: its name, itself, and a way through its times."""


def _same(batch: Any) -> Any:
    return batch


def _chain(operators: int, order: Order[Any], *, idle: int = 0) -> tuple[Worker, InputHandle, Probe]:
    """Return a chain of operators, in a worker that also has a dataflow of `idle` ones, which have run once."""
    worker = Worker(monotonic=time.monotonic)
    with worker.dataflow("chain", order=order) as scope:
        orders, stream = scope.input("orders")
        for _ in range(operators):
            stream = stream.map(_same)
        probe = stream.probe()
    if idle:
        with worker.dataflow("idle", order=order) as scope:
            _held, quiet = scope.input("held")
            for _ in range(idle):
                quiet = quiet.map(_same)
            quiet.probe()
    worker.step()
    return worker, orders, probe


def _advancing(operators: int, order: Order[Any], at: Callable[[int], Any], *, idle: int = 0) -> Callable[[], None]:
    """Return what advances a chain's input by one and steps until its probe knows."""
    worker, orders, probe = _chain(operators, order, idle=idle)
    epochs = count(1)

    def advance() -> None:
        now = at(next(epochs))
        orders.advance_to(now)
        while probe.less_than(now):
            worker.step()

    return advance


def _in_turns(advances: Sequence[Callable[[], None]], times: Sequence[int]) -> list[tuple[float, ...]]:
    """Return the microseconds of each, in five rounds in which all take turns."""
    rounds = [[1e6 * per(f, times=n, turns=1)[0] for f, n in zip(advances, times, strict=True)] for _ in range(5)]
    return list(zip(*rounds, strict=True))


def _batches(operators: int, batches: int, *, at_once: int) -> tuple[float, ...]:
    """Return the microseconds a batch takes in each operator, at one time, `at_once` of them in a step."""
    worker, orders, _probe = _chain(operators, INT)

    def step() -> None:
        for _ in range(at_once):
            orders.send(None)
        worker.step()

    times = batches // at_once
    return tuple(1e6 * taken / at_once / operators for taken in per(step, times=times, turns=5))


def _loop(iterations: int) -> float:
    """Return the microseconds of a turn of one batch in a nested loop of four operators."""
    worker = Worker(monotonic=time.monotonic)
    with worker.dataflow("outer") as scope:
        numbers, stream = scope.input("numbers")
        with scope.iterative("loop") as loop:
            handle, again = loop.loop_variable(1)
            fewer = stream.enter(loop).concat(again).map(lambda n: n - 1)
            handle.connect(fewer.filter(bool))
    numbers.send(iterations)
    numbers.close()
    begun = time.perf_counter()
    while worker.step():
        pass
    return 1e6 * (time.perf_counter() - begun) / iterations


def _chains(name: str, order: Order[Any], at: Callable[[int], Any], budget: int) -> list[Figure]:
    """Measure one order in chains of four lengths; of the longer ones, what each further operator costs."""
    lengths = (1, 10, 100, 1_000)
    taken = _in_turns(
        [_advancing(length, order, at) for length in lengths], [max(3, budget // (10 + length)) for length in lengths]
    )
    first = Figure(f"a frontier's advance through 1 operator, {name} order", "us", ours=taken[0])
    figures = [first]
    for length, whole in zip(lengths[1:], taken[1:], strict=True):
        ours = tuple((b - a) / (length - 1) for a, b in zip(taken[0], whole, strict=True))
        what = f"the same through {length:,}, for each further operator"
        figures.append(Figure(what, "us", ours=ours, goal=Goal("ours", "<=", 10.0)))
    return figures


def _wide(partitions: int) -> list[Figure]:
    """Measure what it costs that every one of many partitions goes on by one. Its frontier has `2n + 1` times."""
    worker = Worker(monotonic=time.monotonic)
    with worker.dataflow("wide", order=PARTITIONED) as scope:
        _handle, first, stream = scope.unordered_input("positions")
        stream.map(_same).probe()
    held = CapabilitySet([first])
    counted: MutableAntichain[Any] = MutableAntichain(PARTITIONED)
    taken: dict[str, list[float]] = {}
    for position in range(1, 7):
        before, now = (PARTITIONED.frontier(dict.fromkeys(range(partitions), at)) for at in (position - 1, position))
        frontier = Antichain(now, PARTITIONED)
        changes = [*((time, -1) for time in before), *((time, 1) for time in now)]
        parts: dict[str, Callable[[], object]] = {
            "their antichain is made": lambda now=now: Antichain(now, PARTITIONED),  # type: ignore[misc]
            "a capability set goes on": lambda frontier=frontier: held.downgrade(frontier),  # type: ignore[misc]
            "a mutable antichain goes on": lambda changes=changes: counted.update(changes),  # type: ignore[misc]
            "a probe behind one operator hears of it": worker.settle,
        }
        for what, part in parts.items():
            taken.setdefault(what, []).append(1e3 * seconds(part))
    goals = {"a capability set goes on": 50.0, "their antichain is made": 50.0}
    return [
        Figure(
            f"{partitions:,} partitions go on by one: {what}",
            "ms",
            ours=tuple(samples[1:]),  # the first one comes from the minimum
            goal=Goal("ours", "<=", goals[what]) if what in goals else None,
        )
        for what, samples in taken.items()
    ]


def measure(room: Room) -> list[Figure]:
    """Measure chains under both kinds of order, then what else a frontier's advance may meet."""
    budget = room.size(40_000, 4_000)
    figures = [figure for name, order, at in _ORDERS for figure in _chains(name, order, at, budget)]
    _, total, at = _ORDERS[0]
    alone, among = _in_turns([_advancing(1, total, at, idle=idle) for idle in (0, 1_000)], [budget // 20] * 2)
    figures.append(
        Figure(
            "a frontier's advance beside 1,000 idle operators",
            "us",
            ours=among,
            peer=alone,
            peer_name="alone",
            goal=Goal("ratio", "<=", 1.1),
        )
    )
    batches, iterations = room.size(10_000, 1_000), room.size(1_000, 100)
    for at_once, what in ((1, "one step for each"), (batches, "one step for all")):
        ours = _batches(11, batches, at_once=at_once)
        figures.append(Figure(f"{batches:,} batches at one time, {what}", "us a batch and operator", ours=ours))
    figures += _wide(room.size(10_000, 1_000))
    turns = tuple(_loop(iterations) for _ in range(5))
    figures.append(Figure(f"a nested loop of 4 operators, {iterations:,} turns", "us a turn", ours=turns))
    return figures
