"""The event log: complete, in keeping with itself, a stream of another dataflow, and nothing at all when off."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegauge.dataflow import INT, EventReader, EventWriter, LogEvent, LogQueue, Messages, Probe, Progress, Worker
from tidegauge.dataflow.capture.form import Ledger
from tidegauge.dataflow.looking.log import Applies, Fails, Operates, Pointstamp, Publishes, Schedules, Sends, Takes
from tidegauge.dataflow.workers.mailbox import PromptMail
from tidegauge.errors.dataflow import InvalidGraph, OperatorFailed


class Ticking:
    """A clock that goes on by a millisecond each time it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return (self.asked + 0.5) / 1000


def shop(worker: Worker) -> tuple[Any, Probe]:
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        with scope.iterative("loop") as loop:
            handle, again = loop.feedback((0, 1))
            turn = stream.enter(loop).concat(again).map(lambda n: n - 1)
            handle.connect(turn.filter(lambda n: n > 0))
            back = turn.filter(lambda n: n == 0, name="out").leave()
        probe = back.probe()
    return orders, probe


def run(sink: Callable[[LogEvent], object], **options: Any) -> None:
    worker = Worker(Ticking(), validate=True, log=sink, **options)
    orders, _ = shop(worker)
    for n in range(3):
        orders.advance_to(n)
        orders.send(n + 1)
        orders.send(2)
        worker.step()
    orders.close()
    while worker.step():
        pass


def test_operators_are_told_once_with_their_places_and_ports() -> None:
    events: list[LogEvent] = []
    run(events.append)
    assert [event[2:] for event in events if isinstance(event, Operates)] == [
        ("shop/orders", 1, 0, 1),
        ("shop/loop/concat", 2, 2, 1),
        ("shop/loop/map", 3, 1, 1),
        ("shop/loop/filter", 4, 1, 1),
        ("shop/loop/feedback", 1, 1, 1),  # it was connected here
        ("shop/loop/out", 5, 1, 1),
        ("shop/loop", 2, 1, 1),
    ]


def test_between_begin_and_end_of_an_invocation_is_what_it_did() -> None:
    events: list[LogEvent] = []
    run(events.append)
    assert [event.at for event in events] == sorted(event.at for event in events)
    running = ""
    for event in events:
        if isinstance(event, Schedules):
            assert (running == "") if event.begins else (running == event.path)
            running = event.path if event.begins else ""
        elif isinstance(event, Takes | Sends | Publishes):
            assert event.path == running
        else:
            assert running == ""
    assert running == ""


def test_what_was_sent_is_taken_and_what_was_published_applied() -> None:
    events: list[LogEvent] = []
    run(events.append)
    sent: Counter[tuple[str, int]] = Counter()
    taken: Counter[tuple[str, int]] = Counter()
    for event in events:
        if isinstance(event, Sends):
            sent[event.to, event.port] += event.batches
        elif isinstance(event, Takes):
            taken[event.path, event.port] += event.batches
    assert sent["shop/loop", 0] == taken["shop/loop/concat", 0] == 6  # a scope hands on what enters it
    del sent["shop/loop", 0], taken["shop/loop/concat", 0]
    assert sent.pop(("", 0)) == 6  # what leaves the loop, where nobody outside takes it
    assert sent == taken
    published = Counter(c for e in events if isinstance(e, Publishes) for c in e.changes)
    applied = Counter(c for e in events if isinstance(e, Applies) for c in e.changes)
    assert not published - applied
    entered = {("", "output"), ("shop/loop/concat", "input")}
    the_scope = {("shop/loop", "input"), ("shop/loop", "output")}
    assert {(change.path, change.kind) for change in applied - published} == entered | the_scope


def test_the_published_updates_are_the_whole_of_the_progress() -> None:
    """With the capabilities that all begin with, each place is at nothing in the end."""
    events: list[LogEvent] = []
    run(events.append)
    counts: Counter[tuple[Any, ...]] = Counter()
    for event in events:
        if isinstance(event, Operates) and event.path != "shop/loop":
            for port in range(event.outputs):
                counts[event.path, "output", port, (0, 0) if "/loop/" in event.path else 0] += 1
        elif isinstance(event, Applies):
            for change in event.changes:
                counts[change[:-1]] += change.delta
    left = {place: count for place, count in counts.items() if count and place[0] not in ("", "shop/loop")}
    assert left == {}


def test_an_invocation_that_failed_has_done_nothing() -> None:
    def fail(batch: Any) -> Any:
        raise ValueError(batch)

    events: list[LogEvent] = []
    worker = Worker(Ticking(), log=events.append)
    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        stream.map(fail, name="taste")
    orders.send("salt")
    with pytest.raises(OperatorFailed):
        worker.step()
    orders.send("more")
    for _ in range(3):
        worker.step()
    of_it = [event for event in events if event.path == "shop/taste" and not isinstance(event, Operates)]
    assert [type(event) for event in of_it[:3]] == [Schedules, Fails, Schedules]
    assert [event.error for event in of_it if isinstance(event, Fails)] == ["ValueError: salt"]
    assert {type(event) for event in of_it} == {Schedules, Fails}


def test_each_worker_tells_of_itself_and_counts_what_its_peers_published() -> None:
    events: list[LogEvent] = []
    mail = PromptMail(2)
    workers = [Worker(Ticking(), index=index, mail=mail, log=events.append) for index in range(2)]
    handles = []
    for worker in workers:
        with worker.dataflow("shop", order=INT) as scope:
            handle, stream = scope.input("orders")
            stream.broadcast()
            handles.append(handle)
    handles[0].send("x")
    for handle in handles:
        handle.close()
    while workers[0].step() | workers[1].step():
        pass
    sends = [event for event in events if isinstance(event, Sends)]
    assert [(event.worker, event.path, event.to) for event in sends] == [(0, "shop/orders", "shop/broadcast")]
    gone = Pointstamp("shop/orders", "output", 0, 0, -1)
    for index in range(2):
        applied = [c for e in events if isinstance(e, Applies) and e.worker == index for c in e.changes]
        assert applied.count(gone) == 2


def test_without_a_log_nobody_asks_the_clock_or_names_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> Any:
        raise AssertionError("something was told")

    monkeypatch.setattr("tidegauge.dataflow.progress.Pointstamp", forbidden)
    clock = Ticking()
    worker = Worker(clock)
    orders, probe = shop(worker)
    orders.send(3)
    orders.close()
    while worker.step():
        pass
    assert probe.done()
    assert clock.asked == 0


# As a stream.


def drained(queue: LogQueue) -> list[Messages | Progress]:
    return list(queue.drain())


def test_the_log_is_a_legal_stream_in_which_every_event_comes_once() -> None:
    queue, events = LogQueue(), list[LogEvent]()

    def both(event: LogEvent) -> None:
        queue(event)
        events.append(event)

    run(both)
    captured = drained(queue)
    queue.close()
    captured += drained(queue)
    ledger, seen = Ledger(INT), list[LogEvent]()
    for event in captured:
        assert ledger.refusal(event) is None
        ledger.note(event)
        if isinstance(event, Messages):
            assert all(event.stamp == (int(1000 * logged.at),) for logged in event.batch)
            seen += event.batch
    assert seen == events
    assert ledger.frontier() == ()
    assert drained(queue) == []


def test_another_dataflow_can_watch_while_it_runs(worker: Worker) -> None:
    queue = LogQueue()
    watched = Worker(Ticking(), log=queue)
    busiest: Counter[str] = Counter()

    def count(_stamp: Any, batch: list[LogEvent]) -> None:
        busiest.update(event.path for event in batch if isinstance(event, Schedules) and event.begins)

    with worker.dataflow("watch", order=INT) as scope:
        probe = scope.replay(queue).inspect(count).probe()
    orders, _ = shop(watched)
    orders.send(5)
    came: list[int] = []
    for _ in range(12):
        watched.step()
        worker.step()
        came.append(probe.frontier().elements()[0])
    assert came == sorted(came)
    assert came[-1] > came[0]
    assert busiest["shop/loop/map"] == 5
    [holder] = worker.explain_stuck()
    assert "close the LogQueue" in holder.note
    queue.close()
    while worker.step():
        pass
    assert probe.done()
    with pytest.raises(InvalidGraph, match="reader already"), worker.dataflow("again", order=INT) as scope:
        scope.replay(queue)


def test_events_of_several_threads_are_all_there_and_the_stream_stays_legal() -> None:
    queue = LogQueue()
    threads = [threading.Thread(target=run, args=(queue,), kwargs={}) for _ in range(4)]
    for thread in threads:
        thread.start()
    captured: list[Messages | Progress] = []
    while any(thread.is_alive() for thread in threads):
        captured += drained(queue)
    for thread in threads:
        thread.join()
    queue.close()
    captured += drained(queue)
    ledger, total = Ledger(INT), 0
    for event in captured:
        assert ledger.refusal(event) is None
        ledger.note(event)
        total += len(event.batch) if isinstance(event, Messages) else 0
    alone: list[LogEvent] = []
    run(alone.append)
    assert total == 4 * len(alone)


def test_a_log_can_be_kept_in_a_file(worker: Worker, tmp_path: Path) -> None:
    queue = LogQueue()
    run(queue)
    queue.close()
    with EventWriter(tmp_path / "log", INT) as writer:
        with worker.dataflow("keep", order=INT) as scope:
            rows = scope.replay(queue).map(lambda events: [[type(e).__name__, e.at, e.path] for e in events])
            rows.capture(into=writer)
        while worker.step():
            pass
    reader = EventReader(tmp_path / "log", INT)
    names = Counter(row[0] for event in reader if isinstance(event, Messages) for row in event.batch)
    assert names["Operates"] == 7
    assert reader.ending is not None
    assert reader.ending.complete
