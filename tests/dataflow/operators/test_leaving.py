"""What leaves a scope has a stamp of the minimal times there, however many times it had within."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dataflow.conftest import RunOn

from tidegauge.dataflow import INT, CapabilitySet, EventQueue, Messages, OperatorContext, Product, Worker

INNER = Product(INT, INT)


def at(*times: Any) -> Any:
    """An operator that sends each batch once, at all of `times`, by capabilities of these."""

    def build(context: OperatorContext) -> Any:
        context.capabilities[0].drop()

        def step(feed: Any, output: Any) -> None:
            for message, batch in feed.drain():
                held = CapabilitySet(message.delayed(time) for time in times)
                output.give(held, batch)
                held.drop()

        return step

    return build


@pytest.mark.parametrize("across", [False, True], ids=["straight", "across the workers"])
@pytest.mark.parametrize(
    ("within", "outside"),
    [
        ([(2, (0, 1)), (2, (1, 0))], (2,)),
        ([(1, (1, 0)), (2, (0, 0))], (1,)),
        ([(3, (0, 2)), (1, (2, 0)), (3, (1, 1))], (1,)),
        ([(4, (0, 0))], (4,)),
    ],
)
def test_a_stamp_that_leaves_is_minimal_and_every_batch_is_counted_to_the_end(
    run_on: RunOn, within: list[Any], outside: tuple[int, ...], *, across: bool
) -> None:
    def build(worker: Worker) -> tuple[EventQueue, list[Any]]:
        times: list[Any] = []
        with worker.dataflow("flow") as scope:
            numbers, stream = scope.input("numbers")
            with scope.iterative("inside", INNER) as inside:
                handle, again = inside.loop_variable((0, 1))
                sent = stream.enter(inside).unary("several", at(*within))
                if across:
                    sent = sent.broadcast()
                handle.connect(sent.concat(again).filter(lambda _: False))
                left = sent.leave()
            seen = left.inspect(lambda stamp, batch: times.append(stamp)).capture()
            left.state_machine(int, lambda state, batch: (state + 1, None))  # asks for the one time of a batch
        numbers.send(worker.index)
        numbers.send(worker.index)
        numbers.close()
        return seen, times

    for queue, times in run_on(build):
        batches = [event for event in queue.drain() if isinstance(event, Messages)]
        assert batches
        assert {batch.stamp for batch in batches} == set(times) == {outside}
