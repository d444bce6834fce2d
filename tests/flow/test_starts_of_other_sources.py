"""Where outputs begin that read sources which push, which were recreated, or of which upstream keeps a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.flow.test_pushed_rows import catch_up, feed_of, fill, numbers
from tests.flow.upstream import Topic

import tidegauge as tg
from tidegauge.errors.command import BeforeStart
from tidegauge.errors.outputs import OutputBelowIncarnation, StartNotThere
from tidegauge.testing import LogServer


def test_an_output_of_a_source_that_pushes_begins_where_it_is_said_to(tmp_path: Path) -> None:
    def make(*, more: bool) -> tg.Dataflow:
        flow = tg.Dataflow("pushed", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
        feed = flow.source("feed", tg.SocketSource(log.host, log.port, columns="n long, name string"))
        flow.sink("all", feed_of(flow), tg.ParquetSink(str(tmp_path / "all")))
        if more:
            flow.sink("new", feed, tg.ParquetSink(str(tmp_path / "new")), start="now")
            flow.sink("last", feed, tg.DeltaSink(str(tmp_path / "last")), start=last)
        return flow

    with LogServer() as log:
        for first in (0, 100):
            fill(log, first, first + 100)
            catch_up(make(more=False))
        last = max(record.epoch for record, _ in tg.epochs(make(more=False)))
        newest = [row["n"] for row in tg.read_arrow(make(more=False), "all").to_pylist() if row["_epoch"] == last]
        catch_up(make(more=True))
        assert numbers(make(more=True), "last") == sorted(newest)
        with pytest.raises(BeforeStart):
            tg.read_arrow(make(more=True), "new")
        fill(log, 200, 300)
        catch_up(make(more=True))
        assert numbers(make(more=True), "new") == list(range(200, 300))
        assert numbers(make(more=True), "last") == sorted([*newest, *range(200, 300)])


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """An upstream that was recreated after two epochs; two more are of the new one."""
    made = Topic(tmp_path / "topic")
    made.create("first")
    flow = again(tmp_path, made)
    for n in (1, 2):
        made.write("p0", n)
        run(flow)
    made.create("second")
    made.write("p0", 7)
    with pytest.raises(Exception, match="TG-"):
        run(flow)
    tg.resume(flow, "numbers", new_incarnation=True)
    run(flow)
    made.write("p0", 8)
    run(flow)
    return made


def again(root: Path, topic: Topic, **late: Any) -> tg.Dataflow:
    flow = tg.Dataflow("again", store=f"sqlite:///{root}/flow.db", tick=0.01)
    numbers = flow.source("numbers", topic)
    flow.sink("all", numbers, tg.ParquetSink(f"{root}/all"))
    if late:
        flow.sink("late", numbers, tg.ParquetSink(f"{root}/late"), **late)
    return flow


def run(flow: tg.Dataflow) -> None:
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))


def test_an_epoch_of_an_upstream_that_was_recreated_is_no_start(tmp_path: Path, topic: Topic) -> None:
    with pytest.raises(StartNotThere, match="up to epoch 1 the records are of an upstream that was recreated since"):
        run(again(tmp_path, topic, start=1))
    flow = again(tmp_path, topic, start=2)
    run(flow)
    assert tg.read_arrow(flow, "late")["n"].to_pylist() == [7, 8]


def test_positions_are_those_of_the_present_upstream(tmp_path: Path, topic: Topic) -> None:
    flow = again(tmp_path, topic, start={"p0": 1})
    run(flow)
    assert tg.read_arrow(flow, "late")["n"].to_pylist() == [8]


def test_an_output_without_rows_whose_upstream_was_recreated_meanwhile_is_said_to_lack_them(
    tmp_path: Path, topic: Topic
) -> None:
    """It began before, and its flow went on without it: nothing has accepted the loss."""
    flow = again(tmp_path, topic, start="now")
    run(flow)
    topic.write("p0", 9)
    run(again(tmp_path, topic))
    topic.create("third")
    with pytest.raises(Exception, match="TG-"):
        run(again(tmp_path, topic))
    tg.resume(again(tmp_path, topic), "numbers", new_incarnation=True)
    with pytest.raises(OutputBelowIncarnation, match="output 'late' lacks 1 positions"):
        run(again(tmp_path, topic, start="now"))
    tg.resume(flow, "numbers", new_incarnation=True, accept_loss=True)
    topic.write("p0", 10)
    run(flow)
    assert tg.read_arrow(flow, "late")["n"].to_pylist() == [10]
