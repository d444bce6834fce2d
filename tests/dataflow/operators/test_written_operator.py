"""The operator that the page on writing one shows, under the laws that the page names: an example for your own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.docs.pages import ROOT, blocks

from tidegauge.dataflow import DeterministicCluster, Messages, Stream, Worker, records

Payment = tuple[str, int]

ACCOUNTS = st.sampled_from("abc")
PAYMENTS = st.lists(st.lists(st.lists(st.tuples(ACCOUNTS, st.integers(-9, 9)), min_size=1), max_size=3), max_size=4)
"""Of each epoch the batches."""


def shown() -> Callable[[Stream[list[Payment]]], Stream[dict[str, int]]]:
    """Return the operator as the page has it."""
    page: dict[str, Any] = {}
    exec(blocks(ROOT / "docs" / "how-to" / "write-an-operator.md")[0].text, page)
    operator: Callable[[Stream[list[Payment]]], Stream[dict[str, int]]] = page["totals"]
    return operator


totals = shown()


def totalled(epochs: list[list[list[Payment]]], worker: Worker, *, start: int = 0) -> Any:
    """Build the dataflow on a worker, send everything from an epoch on, and return what will come out."""
    with worker.dataflow("shop") as scope:
        payments, stream = scope.input("payments")
        queue = totals(stream.exchange(records.route(lambda payment: payment[0]))).capture()
    for epoch, batches in enumerate(epochs):
        payments.advance_to(epoch)
        for batch in batches if epoch >= start and epoch % worker.peers == worker.index else ():
            payments.send(batch)
    payments.close()
    return queue


def results(queues: list[Any]) -> list[tuple[int, dict[str, int]]]:
    """Return the results of all workers, those of one epoch put together. Each worker has one at most."""
    found: dict[int, dict[str, int]] = {}
    for queue in queues:
        came = [(event.stamp[0], event.batch) for event in queue.drain() if isinstance(event, Messages)]
        assert [epoch for epoch, _ in came] == sorted({epoch for epoch, _ in came}), "each epoch once, in order"
        for epoch, sums in came:
            found.setdefault(epoch, {}).update(sums)
    return sorted(found.items())


def model(epochs: list[list[list[Payment]]], *, start: int = 0) -> list[tuple[int, dict[str, int]]]:
    """Return what an epoch is to result in, without a dataflow."""
    wanted: dict[int, Counter[str]] = {}
    for epoch, batches in enumerate(epochs):
        for batch in batches if epoch >= start else ():
            for account, amount in batch:
                wanted.setdefault(epoch, Counter())[account] += amount
    return [(epoch, dict(sums)) for epoch, sums in wanted.items()]


@settings(max_examples=40, deadline=None)
@given(PAYMENTS, st.integers(1, 3), st.integers(0, 2**16))
def test_each_epoch_has_one_result_on_any_number_of_workers(
    epochs: list[list[list[Payment]]], peers: int, seed: int
) -> None:
    cluster = DeterministicCluster(peers=peers, seed=seed)  # it validates: what is sent is at or after a capability
    assert results(cluster.run(lambda worker: totalled(epochs, worker))) == model(epochs)


@settings(max_examples=40, deadline=None)
@given(PAYMENTS, st.integers(0, 4))
def test_a_restart_at_any_epoch_comes_to_the_same_results(epochs: list[list[list[Payment]]], start: int) -> None:
    worker = Worker(validate=True)
    queue = totalled(epochs, worker, start=start)
    worker.settle()
    assert results([queue]) == model(epochs, start=start)


@settings(max_examples=40, deadline=None)
@given(PAYMENTS)
def test_no_result_comes_before_its_epoch_is_complete_and_none_holds_the_frontier(
    epochs: list[list[list[Payment]]],
) -> None:
    worker = Worker(validate=True)
    came: list[int] = []
    with worker.dataflow("shop") as scope:
        payments, stream = scope.input("payments")
        probe = totals(stream).inspect(lambda stamp, _: came.append(stamp[0])).probe()
    for epoch, batches in enumerate(epochs):
        payments.advance_to(epoch)
        for batch in batches:
            payments.send(batch)
        worker.settle()
        assert epoch not in came
        payments.advance_to(epoch + 1)
        worker.settle()
        assert not probe.less_equal(epoch)
        assert (epoch in came) is bool(batches)
