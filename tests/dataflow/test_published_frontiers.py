"""What another thread reads of a frontier at any instant is a frontier that was true, never a part of an update.

A reader in a thread of its own looks between two instructions of the worker, rarely at a bad moment. Here somebody
looks before each line that the worker runs, in the worker's own thread, so every moment comes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from tidegauge.dataflow import (
    INT,
    PARTITIONED,
    Antichain,
    DeterministicCluster,
    FrontierView,
    InputHandle,
    Order,
    Probe,
    Product,
    Worker,
)

COUNTING = {"progress.py", "reachability.py", "outstanding.py", "view.py"}


@contextmanager
def before_each_line(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` before each line that runs within and that keeps count of progress."""

    def line(_frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            look()
        return line

    def call(frame: FrameType, _event: str, _arg: Any) -> Any:
        return line if Path(frame.f_code.co_filename).name in COUNTING else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


ORDERS: list[tuple[Order[Any], Any, Callable[[Any, Random], Any]]] = [
    (INT, 1, lambda time, random: time + random.randrange(3)),
    (Product(INT, INT), (0, 1), lambda time, random: (time[0] + random.randrange(2), time[1] + random.randrange(2))),
    (PARTITIONED, (None, 1), lambda time, random: (time[0], time[1] + random.randrange(3))),
]


def loop(worker: Worker, order: Order[Any], summary: Any) -> tuple[InputHandle, list[Probe]]:
    """An input whose stream goes round, and one nested in it; probes at each, and one that sees two streams."""
    with worker.dataflow("loop", order=order) as scope:
        numbers, stream = scope.input("numbers")
        handle, again = scope.feedback(summary)
        joined = stream.concat(again).filter(lambda n: n > 0)
        turned = joined.exchange(lambda n, peers: [(n % peers, n)])
        handle.connect(turned.map(lambda n: n - 1))
        with scope.region("inside") as inside:
            left = turned.enter(inside).map(lambda n: n, name="within").leave()
        shared = again.probe()
        return numbers, [joined.probe(), turned.probe(), left.probe(), stream.probe(shared)]


@pytest.mark.parametrize(("order", "summary", "onward"), ORDERS, ids=["INT", "Product", "PARTITIONED"])
@pytest.mark.parametrize("peers", [1, 2])
def test_no_reader_sees_a_frontier_that_is_beyond_a_later_one(
    order: Order[Any], summary: Any, onward: Callable[[Any, Random], Any], peers: int
) -> None:
    random = Random(peers)
    cluster = DeterministicCluster(peers=peers, seed=peers)
    built = [loop(worker, order, summary) for worker in cluster.workers]
    probes = [probe for _, watching in built for probe in watching]
    seen: list[list[Antichain[Any]]] = [[probe.frontier()] for probe in probes]

    def look() -> None:
        for probe, looks in zip(probes, seen, strict=True):
            if (now := probe.frontier()) != looks[-1]:
                looks.append(now)

    for _ in range(4):
        for numbers, _ in built:
            numbers.send(random.randrange(3))
            numbers.advance_to(onward(numbers.time, random))
        with before_each_line(look):
            while not cluster.idle:
                cluster.step()
    assert all(len(looks) > 2 for looks in seen), "the frontiers moved"
    for looks in seen:
        assert not any(frontier.is_empty() for frontier in looks), "the inputs are open"
        assert all(earlier <= later for earlier, later in pairwise(looks))


def test_what_a_view_has_shown_does_not_change() -> None:
    view = FrontierView(INT)
    view.shown = (3,)
    seen = view.elements()
    view.shown = ()
    assert (seen, view.elements()) == ((3,), ())
