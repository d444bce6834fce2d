"""The persist operator: a table that refuses for good ends its output, whatever comes after."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from tests.sinks.conftest import OUTPUT, SCHEMA, stage

from tidegauge.dataflow import INT, Worker
from tidegauge.env import Env
from tidegauge.errors.sinks import UnsupportedTable
from tidegauge.pipeline.runner import at_once
from tidegauge.remap.history import NO_HISTORY
from tidegauge.sinks import DeltaSink
from tidegauge.sinks.backlog import Backlog
from tidegauge.sinks.persist import Committed, Manifest, OutputFailed, PersistSetup, persist


class Log:
    """A `FailureLog` and an `OutputWatcher` that only listens."""

    def __init__(self) -> None:
        self.failures: list[OutputFailed] = []
        self.held: list[int] = []
        self.done: list[int] = []

    def failed(self, failure: OutputFailed) -> None:
        self.failures.append(failure)

    def passed(self, output: str, upper: int) -> None:
        assert output == "orders"
        self.held.append(upper)

    def committed(self, committed: Committed) -> None:
        self.done.append(committed.upper)

    def stalled(self, output: str, error: Exception, attempt: int) -> None:
        raise AssertionError(f"{output} is refused, not stalled: {error} ({attempt})")


def test_after_a_refusal_nothing_is_committed_even_when_the_table_would_take_it_again(tmp_path: Path) -> None:
    """Else the next commit would cover the epochs that were refused, and say that they are empty."""
    path = str(tmp_path / "orders")
    sink, log = DeltaSink(path), Log()
    table = sink.open(OUTPUT)
    table.commit(0, 1, SCHEMA, stage(sink, [0]), write="0" * 32)
    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("shop", order=INT) as scope:
        manifests, stream = scope.input("manifests")
        probe = persist(
            stream,
            PersistSetup(
                history=lambda _lower, _upper, *, whole: NO_HISTORY,
                output="orders",
                table=table,
                env=Env(),
                spawn=at_once,
                confirm=lambda: None,
                backoff=lambda _: 0.0,
                backlog=Backlog(),
                failures=log,
                watcher=log,
            ),
        ).probe()

    def give(epoch: int) -> None:
        files = tuple(stage(sink, [epoch]))
        manifests.advance_to(epoch)
        manifests.send([Manifest(epoch, epoch + 1, f"{epoch:032x}", SCHEMA, files, 1)])
        manifests.advance_to(epoch + 1)
        while not log.failures and probe.less_than(epoch + 1):
            worker.step()
        for _ in range(5):  # and what else there may be to do
            worker.step()

    give(1)
    DeltaTable(path).alter.add_constraint({"small": "amount < 1000"})
    give(2)
    DeltaTable(path).alter.drop_constraint("small")
    give(3)
    assert (log.done, log.held) == ([2], [2])
    assert [(failure.epoch, type(failure.error)) for failure in log.failures] == [(2, UnsupportedTable)]
    assert not probe.less_than(4), "the others are not kept waiting"
    again = sink.open(OUTPUT)
    assert again.upper == 2
    assert len(list(Path(path).glob("*.parquet"))) == len(again.files()) == 2, "what came in vain is gone"
