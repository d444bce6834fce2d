"""Functions of `on_epoch`: each publication is told, in order, and the run does not depend on them."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.dsl import listening
from tidegauge.errors.flow import InvalidArgument
from tidegauge.flow.publication import Publication, Publications
from tidegauge.sinks.persist import Committed

BEGAN = datetime(2026, 11, 27, tzinfo=UTC)


def flow_of(folder: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db", tick=tg.Manual())
    orders = flow.source("orders", tg.FileSource(f"{folder}/orders.jsonl", format=tg.Json("id long")))
    flow.sink("all", orders, tg.DeltaSink(f"{folder}/all"))
    flow.sink("few", orders.filter("id > 2"), tg.ParquetSink(f"{folder}/few"))
    return flow


def write(folder: Path, *ids: int) -> None:
    with (folder / "orders.jsonl").open("a") as stream:
        stream.writelines(f'{{"id": {one}}}\n' for one in ids)


def test_each_publication_is_told_with_its_rows_and_where_its_sources_are_now(tmp_path: Path) -> None:
    flow, told = flow_of(tmp_path), list[Publication]()
    assert flow.on_epoch(told.append) is not None
    write(tmp_path, 1, 2, 3)
    with flow.start(engine="local") as run:
        for number in range(3):
            flow.tick()
            eventually(lambda: bool(told) and told[-1].epochs.stop == number + 1)  # noqa: B023 - it is waited for here
            write(tmp_path, 4 + number)
        report = run.status
    assert [(one.epochs, one.rows) for one in told] == [
        (range(1), {"all": 3, "few": 1}),
        (range(1, 2), {"all": 1, "few": 1}),
        (range(2, 3), {"all": 1, "few": 1}),
    ]
    by_name = {output.name: output for output in report.outputs}
    for name in ("all", "few"):
        assert sum(one.rows[name] for one in told) == by_name[name].rows
        assert sum(one.bytes[name] for one in told) == by_name[name].bytes
    assert sum(told[-1].positions["orders"].values()) == report.sources[0].published
    assert all(one.seconds is not None and 0 <= one.seconds < 60 for one in told)
    assert [one.published_at for one in told] == sorted(one.published_at for one in told)


def test_a_listener_that_takes_long_holds_nothing_up_and_gets_the_rest_as_one(tmp_path: Path) -> None:
    flow, told = flow_of(tmp_path), list[Publication]()
    began, go_on, others = threading.Event(), threading.Event(), list[Publication]()

    @flow.on_epoch
    def slow(publication: Publication) -> None:
        told.append(publication)
        began.set()
        assert go_on.wait(60)

    flow.on_epoch(others.append)
    try:
        with flow.start(engine="local"):
            for number in range(4):
                write(tmp_path, number)
                flow.tick()
                eventually(lambda: bool(others) and others[-1].epochs.stop == number + 1)  # noqa: B023
                assert began.wait(60)
            go_on.set()
    finally:
        go_on.set()
    assert [one.epochs for one in told] == [range(1), range(1, 4)]
    assert told[1].rows == {"all": 3, "few": 1}
    assert told[1].positions == others[-1].positions


def test_what_a_listener_raises_is_logged_with_its_code_and_it_is_called_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow, told = flow_of(tmp_path), list[range]()

    @flow.on_epoch
    def wrong(publication: Publication) -> None:
        told.append(publication.epochs)
        raise ValueError("no such channel")

    with caplog.at_level(logging.WARNING, "tidegauge"):
        for number in range(2):
            write(tmp_path, number)
            assert flow.run("caught-up", engine="local").published == number + 1
    assert told == [range(1), range(1, 2)]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["TG-0654", "TG-0654"]
    assert "wrong" in caplog.text
    assert "no such channel" in caplog.text


def test_a_listener_that_never_returns_keeps_no_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "LAST_CALL", 0.2)
    flow, ended = flow_of(tmp_path), threading.Event()
    flow.on_epoch(lambda _publication: ended.wait())
    write(tmp_path, 1)
    try:
        assert flow.run("caught-up", engine="local").why == "caught up"
    finally:
        ended.set()
    assert "has not returned" in caplog.text


@pytest.mark.parametrize("listener", [None, "print", 5])
def test_what_cannot_be_called_is_refused(tmp_path: Path, listener: Any) -> None:
    with pytest.raises(InvalidArgument, match="listener"):
        flow_of(tmp_path).on_epoch(listener)


@deep(200)
@given(st.lists(st.tuples(st.sampled_from("abp"), st.integers(1, 4)), max_size=60))
def test_whatever_is_committed_when_it_is_told_once_with_the_publication_that_has_it(
    steps: list[tuple[str, int]],
) -> None:
    publications, uppers, published, now = Publications(), {"a": 0, "b": 0}, 0, BEGAN
    committed, told = list[Committed](), list[Publication]()
    for what, count in steps:
        now += timedelta(seconds=1)
        if what == "p":
            upper = min(*uppers.values(), published + count)
            if upper > published:
                told.append(publications.published(published, upper, at=now, positions={}))
                published = upper
        else:
            uppers[what] += count
            committed.append(Committed(what, uppers[what], rows=count, bytes=10 * count))
            publications.committed(committed[-1])
    assert [one.epochs.start for one in told] == [0, *(one.epochs.stop for one in told)][: len(told)]
    for output in "ab":
        due = sum(one.rows for one in committed if one.output == output and one.upper <= published)
        assert sum(one.rows.get(output, 0) for one in told) == due
        assert sum(one.bytes.get(output, 0) for one in told) == 10 * due
    if len(told) > 1:
        whole = told[0]
        for one in told[1:]:
            whole = whole.then(one)
        assert whole.epochs == range(published)
        assert all(whole.rows[name] == sum(one.rows.get(name, 0) for one in told) for name in whole.rows)


def test_an_output_that_is_far_ahead_is_remembered_in_little_room_and_told_later() -> None:
    publications = Publications()
    for epoch in range(5000):
        publications.minted(epoch, at=BEGAN)
        publications.committed(Committed("a", epoch + 1, rows=1))
    first = publications.published(0, 10, at=BEGAN, positions={})
    assert (first.rows, first.seconds) == ({"a": 10}, 0.0)
    rest = publications.published(10, 5000, at=BEGAN, positions={})
    assert rest.rows == {"a": 4990}
