"""Listeners of Spark's streaming queries are told of a flow on their session, which does not depend on them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener
from tests.flow.test_on_epoch import flow_of, write
from tests.waiting import eventually as soon

import tidegauge as tg
from tidegauge.engine import SparkEngine
from tidegauge.flow.publication import Publication

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def eventually(condition: Callable[[], object]) -> None:
    """Come back when the condition holds. The first job of a session takes its time."""
    soon(condition, within=120)


class Heard(StreamingQueryListener):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.progress: list[Any] = []
        self.terminated: list[Any] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self.started.append(event)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.progress.append(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.terminated.append(event)


@pytest.fixture
def heard(classic: Any) -> Iterator[Heard]:
    listener = Heard()
    classic.streams.addListener(listener)
    yield listener
    classic.streams.removeListener(listener)


def offsets(text: str) -> dict[str, int]:
    """The offsets of one source, as a listener gets them."""
    found: dict[str, int] = json.loads(text)
    return found


def test_each_publication_is_a_progress_with_its_numbers(classic: Any, heard: Heard, tmp_path: Path) -> None:
    flow, told = flow_of(tmp_path), list[Publication]()
    flow.on_epoch(told.append)
    write(tmp_path, 1, 2, 3)
    with flow.start(spark=classic) as run:
        for number in range(2):
            flow.tick()
            eventually(lambda: bool(told) and told[-1].epochs.stop == number + 1)  # noqa: B023 - waited for here
            eventually(lambda: len(heard.progress) == number + 1)  # noqa: B023
            write(tmp_path, 4 + number)
        assert run.status.published == 2
    eventually(lambda: bool(heard.terminated))
    [started], [ended] = heard.started, heard.terminated
    assert (started.name, ended.exception) == ("shop", None)
    assert {str(one.runId) for one in heard.progress} == {str(started.runId)} == {str(ended.runId)}
    assert {str(one.id) for one in heard.progress} == {str(started.id)}
    for publication, progress in zip(told, heard.progress, strict=True):
        assert progress.batchId == publication.epochs.stop - 1
        assert progress.sink.numOutputRows == sum(publication.rows.values())
        assert progress.numInputRows == publication.rows["all"]
        assert progress.sink.metrics["few.bytes"] == str(publication.bytes["few"])
        assert publication.seconds is not None
        assert progress.durationMs["triggerExecution"] == round(1000 * publication.seconds) == progress.batchDuration
        [source] = progress.sources
        assert source.description == "tidegauge[orders]"
        assert offsets(source.endOffset) == dict(publication.positions["orders"])
    [first], [second] = (one.sources for one in heard.progress)
    assert offsets(first.startOffset) == {}
    assert second.startOffset == first.endOffset != second.endOffset


def test_a_flow_is_one_query_run_after_run_and_an_error_that_ends_it_is_told(
    classic: Any, heard: Heard, tmp_path: Path
) -> None:
    write(tmp_path, 1)
    flow_of(tmp_path).run("caught-up", spark=classic)
    with (tmp_path / "orders.jsonl").open("a") as stream:
        stream.write("no JSON\n")
    with pytest.raises(tg.TidegaugeError) as caught:
        flow_of(tmp_path).run("caught-up", spark=classic)
    eventually(lambda: len(heard.terminated) == 2)
    assert len({str(one.id) for one in heard.started}) == 1
    assert len({str(one.runId) for one in heard.started}) == 2
    assert heard.terminated[0].exception is None
    assert caught.value.code in heard.terminated[1].exception


def test_a_listener_that_raises_or_holds_up_spark_holds_up_no_flow(classic: Any, tmp_path: Path) -> None:
    class Bad(Heard):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            super().onQueryStarted(event)
            let_go.append(go_on.wait(60))

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            super().onQueryProgress(event)
            raise ValueError("no")

    go_on, listener, let_go = threading.Event(), Bad(), list[bool]()
    classic.streams.addListener(listener)
    write(tmp_path, 1)
    flow = flow_of(tmp_path)
    try:
        with flow.start(spark=classic) as run:
            flow.tick()
            eventually(lambda: run.status.published == 1)
            assert not listener.progress, "Spark's listener has not returned from the start"
            go_on.set()
            eventually(lambda: bool(listener.progress))
        eventually(lambda: bool(listener.terminated))
        assert let_go == [True], "the epoch was published before Spark's listener returned"
    finally:
        go_on.set()
        classic.streams.removeListener(listener)


def test_where_spark_has_no_such_events_nothing_is_posted_and_the_flow_goes_on(
    classic: Any, heard: Heard, tmp_path: Path
) -> None:
    from tidegauge.engine.spark.listeners import SparkListeners

    events = SparkListeners(classic)
    events.progressed({"id": "no progress of Spark's"})
    events.terminated(None)
    engine = SparkEngine(classic)
    assert isinstance(engine.events(), SparkListeners)
    engine.close()
    write(tmp_path, 1)
    assert flow_of(tmp_path).run("caught-up", engine="local").published == 1
    assert heard.started == heard.progress == heard.terminated == []


def test_nobody_listens_on_connect() -> None:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session: Any = object.__new__(ConnectSession)
    engine = SparkEngine(session)
    assert engine.events() is None
