"""A source whose upstream was recreated goes on as a new incarnation; what is lost by it is said (laws 8 and 9)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.flow.upstream import Topic

import tidegauge as tg
from tidegauge.errors.outputs import OutputBelowIncarnation
from tidegauge.errors.running import LossNotAccepted, NothingToResume, UpstreamRecreated
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.remap.store import LeaseHolder, Store

Step = Callable[[pa.RecordBatch], pa.RecordBatch]


def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A step that raises at the number 4."""
    if 4 in batch.column("n").to_pylist():
        raise ValueError("4")
    return batch


def flow_of(root: Path, topic: Topic, *, step: Step | None = None, late: bool = False) -> tg.Dataflow:
    made = tg.Dataflow("again", store=f"sqlite:///{root}/flow.db", tick=0.01)
    numbers = made.source("numbers", topic)
    made.sink("all", numbers, tg.ParquetSink(f"{root}/all"))
    if step is not None:
        made.sink("some", numbers.map_batches(step), tg.ParquetSink(f"{root}/some"))
    if late:
        made.sink("late", numbers, tg.ParquetSink(f"{root}/late"))
    return made


def run(flow: tg.Dataflow, *, fails: type[Exception] | None = None) -> None:
    if fails is None:
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        return
    with pytest.raises(fails):
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))


def rows(flow: tg.Dataflow, output: str = "all") -> list[tuple[int, int]]:
    """The numbers of an output with their epochs."""
    table = tg.read_arrow(flow, output)
    return sorted(zip(table.column("_epoch").to_pylist(), table.column("n").to_pylist(), strict=True))


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """An upstream with three numbers in one partition and one in another."""
    made = Topic(tmp_path / "topic")
    made.create("first")
    made.write("p0", 1, 2, 3)
    made.write("p1", 10)
    return made


def recreate(topic: Topic) -> None:
    """Make the upstream anew, with less in it."""
    topic.create("second")
    topic.write("p0", 7, 8)


def test_it_begins_at_the_next_epoch_with_all_that_the_new_upstream_has(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    topic.write("p0", 4)
    run(flow)
    recreate(topic)
    run(flow, fails=UpstreamRecreated)
    run(flow, fails=UpstreamRecreated)  # it outlives a restart
    resumed = tg.resume(flow, "numbers", new_incarnation=True)
    assert (resumed.incarnation, resumed.began_at, resumed.gaps) == (1, 2, ())
    run(flow)
    topic.write("p0", 9)
    run(flow_of(tmp_path, topic))

    assert rows(flow) == [(0, 1), (0, 2), (0, 3), (0, 10), (1, 4), (2, 7), (2, 8), (3, 9)]
    assert [dict(sizes) for _, sizes in tg.epochs(flow)] == [
        {"numbers": 4},
        {"numbers": 1},
        {"numbers": 2},
        {"numbers": 1},
    ]
    [status] = tg.status(flow).sources
    assert (status.state, status.incarnation, status.bound, status.published, status.lag) == ("idle", 1, 3, 3, 0)
    ranges = [[(s.partition, s.lower, s.upper) for s in tg.explain(flow, e).slices] for e in range(4)]
    assert ranges == [[("p0", 0, 3), ("p1", 0, 1)], [("p0", 3, 4)], [("p0", 0, 2)], [("p0", 2, 3)]]


def test_the_bindings_of_both_can_be_queried(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    recreate(topic)
    run(flow, fails=UpstreamRecreated)
    tg.resume(flow, "numbers", new_incarnation=True)
    run(flow)
    found = tg.bindings(flow).select(["epoch", "partition", "lower", "position"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [(0, "p0", 0, 3), (0, "p1", 0, 1), (1, "p0", 0, 2)]
    assert tg.bindings(flow, first=1).column("lower").to_pylist() == [0]
    connection = sqlite3.connect(tmp_path / "flow.db")
    view = connection.execute(
        'SELECT incarnation, epoch, "partition", lower, position FROM bindings ORDER BY epoch, "partition"'
    ).fetchall()
    told = connection.execute("SELECT number, began_at, identity FROM incarnations").fetchall()
    connection.close()
    assert view == [(0, 0, "p0", 0, 3), (0, 0, "p1", 0, 1), (1, 1, "p0", 0, 2)]
    assert told == [(1, 1, "second")]


def test_once_resumed_there_is_nothing_to_resume(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    for how in (True, False):
        with pytest.raises(NothingToResume, match="it has not failed"):
            tg.resume(flow, "numbers", new_incarnation=how)
    recreate(topic)
    run(flow, fails=UpstreamRecreated)
    tg.resume(flow, "numbers", new_incarnation=True)
    with pytest.raises(NothingToResume):
        tg.resume(flow, "numbers", new_incarnation=True)


def test_only_an_upstream_that_was_recreated_begins_a_new_incarnation(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("no JSON\n")
    flow = tg.Dataflow("again", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    files = tg.FileSource(f"{tmp_path}/in/*.jsonl", format=tg.Json("id long"), settle=0)
    flow.sink("all", flow.source("numbers", files), tg.ParquetSink(f"{tmp_path}/all"))
    run(flow, fails=tg.TidegaugeError)
    with pytest.raises(NothingToResume, match="TG-0502"):
        tg.resume(flow, "numbers", new_incarnation=True)
    assert tg.status(flow).sources[0].state == "failed"


def test_a_flow_that_runs_elsewhere_is_left_alone(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    recreate(topic)
    run(flow, fails=UpstreamRecreated)
    env = tg.Env()
    store = Store.open(flow.store, env=env)
    elsewhere = replace(LeaseHolder.current(env), name="grace", host="elsewhere", run="e" * 32)
    lease = store.acquire(flow.name, holder=elsewhere)
    with pytest.raises(FlowAlreadyRunning, match="grace"):
        tg.resume(flow, "numbers", new_incarnation=True)
    lease.release()
    store.close()
    assert tg.resume(flow, "numbers", new_incarnation=True).incarnation == 1


def test_what_an_output_lacks_of_the_old_upstream_is_not_given_up_in_silence(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic, step=refuse)
    run(flow)
    topic.write("p0", 4, 5)
    run(flow, fails=tg.TidegaugeError)  # `some` has failed at epoch 1
    recreate(topic)
    run(flow, fails=tg.TidegaugeError)
    with pytest.raises(LossNotAccepted, match=r"2 records .* epochs 1 to 1, .* lacking in 'some'"):
        tg.resume(flow, "numbers", new_incarnation=True)
    assert [(s.state, s.incarnation, s.lost) for s in tg.status(flow).sources] == [("failed", 0, 0)]

    resumed = tg.resume(flow, "numbers", new_incarnation=True, accept_loss=True)
    assert [(g.epoch, g.partition, g.lower, g.upper, g.code) for g in resumed.gaps] == [(1, "p0", 3, 5, "TG-0554")]
    mended = flow_of(tmp_path, topic, step=lambda batch: batch)
    run(mended)
    assert rows(mended, "all") == [(0, 1), (0, 2), (0, 3), (0, 10), (1, 4), (1, 5), (2, 7), (2, 8)]
    assert rows(mended, "some") == [(0, 1), (0, 2), (0, 3), (0, 10), (2, 7), (2, 8)]
    assert [(s.state, s.incarnation, s.lost) for s in tg.status(mended).sources] == [("idle", 1, 2)]
    assert [gap.size for gap in tg.explain(mended, 1).gaps] == [2]
    assert tg.explain(mended, 0).gaps == tg.explain(mended, 2).gaps == ()


def test_once_every_output_has_what_was_bound_nothing_is_lost(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic, step=refuse)
    run(flow)
    topic.write("p0", 4, 5)
    run(flow, fails=tg.TidegaugeError)
    kept = topic.folder.rename(tmp_path / "kept")
    recreate(topic)
    run(flow, fails=tg.TidegaugeError)
    topic.folder.rename(tmp_path / "new")
    kept.rename(topic.folder)  # the old upstream is found again
    resumed = tg.resume(flow, "numbers")
    assert (resumed.incarnation, resumed.gaps) == (0, ())
    mended = flow_of(tmp_path, topic, step=lambda batch: batch)
    run(mended)
    assert rows(mended, "some") == rows(mended, "all") == [(0, 1), (0, 2), (0, 3), (0, 10), (1, 4), (1, 5)]
    recreate(topic)
    run(mended, fails=UpstreamRecreated)
    assert tg.resume(mended, "numbers", new_incarnation=True).gaps == ()


def test_a_failure_whose_cause_is_still_there_comes_again(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    recreate(topic)
    run(flow, fails=UpstreamRecreated)
    tg.resume(flow, "numbers")
    run(flow, fails=UpstreamRecreated)
    assert rows(flow) == [(0, 1), (0, 2), (0, 3), (0, 10)]


def test_an_upstream_may_be_recreated_again_and_again(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    for number, identity in enumerate(("second", "third"), start=1):
        topic.create(identity)
        topic.write("p0", 100 * number)
        run(flow, fails=UpstreamRecreated)
        assert tg.resume(flow, "numbers", new_incarnation=True).incarnation == number
        run(flow)
    topic.create("fourth")  # and once more before anything of the fifth is bound
    run(flow, fails=UpstreamRecreated)
    tg.resume(flow, "numbers", new_incarnation=True)
    topic.create("fifth")
    topic.write("p9", 300)
    run(flow)
    assert rows(flow) == [(0, 1), (0, 2), (0, 3), (0, 10), (1, 100), (2, 200), (3, 300)]


def test_an_output_that_is_added_later_begins_with_the_present_incarnation(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    recreate(topic)
    run(flow, fails=UpstreamRecreated)
    with pytest.raises(LossNotAccepted, match="late"):  # what it would have had cannot be read any more
        tg.resume(flow_of(tmp_path, topic, late=True), "numbers", new_incarnation=True)
    tg.resume(flow, "numbers", new_incarnation=True)
    later = flow_of(tmp_path, topic, late=True)
    run(later)
    assert rows(later, "late") == [(1, 7), (1, 8)]
    [status] = tg.status(later).sources
    assert status.lost == 0, "what was bound before is in the other table, and was never this one's to have"
    assert [(row["incarnation"], row["epoch"]) for row in tg.bindings(later).to_pylist()] == [(0, 0), (0, 0), (1, 1)]


@pytest.mark.parametrize("point", ["before begin incarnation", "after begin incarnation"])
def test_a_crash_leaves_the_old_incarnation_or_the_new_one(tmp_path: Path, topic: Topic, point: str) -> None:
    class Crash(BaseException):
        pass

    def die(name: str) -> None:
        if name == point:
            raise Crash

    flow = flow_of(tmp_path, topic)
    run(flow)
    recreate(topic)
    run(flow, fails=UpstreamRecreated)
    with pytest.raises(Crash):
        tg.resume(flow, "numbers", new_incarnation=True, env=tg.Env(point=die))
    if point.startswith("before"):
        assert tg.resume(flow, "numbers", new_incarnation=True).incarnation == 1
    run(flow)
    assert rows(flow)[-2:] == [(1, 7), (1, 8)]


def test_accepting_a_loss_goes_with_a_new_incarnation_alone(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    with pytest.raises(tg.TidegaugeError, match="accept_loss"):
        tg.resume(flow, "numbers", accept_loss=True)
    with pytest.raises(tg.TidegaugeError, match="'number'"):
        tg.resume(flow, "number")


def test_history_that_is_compacted_past_its_beginning_leaves_the_present_incarnation(
    tmp_path: Path, topic: Topic
) -> None:
    flow = flow_of(tmp_path, topic)
    run(flow)
    recreate(topic)
    run(flow, fails=UpstreamRecreated)
    tg.resume(flow, "numbers", new_incarnation=True)
    for number in (9, 11):
        run(flow)
        topic.write("p0", number)
    run(flow)
    assert tg.compact(flow, before=2).since == 2
    assert [(s.partition, s.lower, s.upper) for s in tg.explain(flow, 2).slices] == [("p0", 0, 3)]
    [status] = tg.status(flow).sources
    assert (status.incarnation, status.bound, status.lag) == (1, 4, 0)
    topic.write("p1", 12)
    later = flow_of(tmp_path, topic, late=True)
    run(later)
    assert rows(later)[-4:] == [(1, 8), (2, 9), (3, 11), (4, 12)]
    assert rows(later, "late") == [(2, 7), (2, 8), (2, 9), (3, 11), (4, 12)]


def test_what_an_output_has_lost_of_the_old_upstream_does_not_stop_it_once_it_is_compacted(
    tmp_path: Path, topic: Topic
) -> None:
    flow = flow_of(tmp_path, topic, step=refuse)
    run(flow)
    topic.write("p0", 4, 5)
    run(flow, fails=tg.TidegaugeError)  # `some` has failed at epoch 1
    topic.create("second")  # with nothing in it yet
    run(flow, fails=tg.TidegaugeError)
    mended = flow_of(tmp_path, topic, step=lambda batch: batch)
    tg.resume(mended, "numbers", new_incarnation=True, accept_loss=True)
    done = tg.compact(mended, before=1)
    assert (done.since, done.kept) == (0, "output 'some' goes on from epoch 0, the last it holds")
    assert rows(mended, "some") == [(0, 1), (0, 2), (0, 3), (0, 10)]
    run(mended)
    topic.write("p0", 7)
    run(mended)
    assert tg.compact(mended, before=1).since == 1
    assert rows(mended, "some") == [(0, 1), (0, 2), (0, 3), (0, 10), (2, 7)]


@pytest.mark.parametrize("anew", [1, 2])
def test_an_output_that_was_left_out_when_the_upstream_was_recreated_does_not_go_on_in_silence(
    tmp_path: Path, topic: Topic, anew: int
) -> None:
    both, alone = flow_of(tmp_path, topic, late=True), flow_of(tmp_path, topic)
    run(both)
    topic.write("p0", 4, 5)
    run(alone)  # `late` is left out, and lacks epoch 1
    recreate(topic)
    run(alone, fails=UpstreamRecreated)
    tg.resume(alone, "numbers", new_incarnation=True)
    run(alone)
    run(both, fails=OutputBelowIncarnation)
    assert rows(both, "late") == [(0, 1), (0, 2), (0, 3), (0, 10)]
    if anew == 2:
        topic.create("third")
        run(alone, fails=UpstreamRecreated)
        with pytest.raises(LossNotAccepted, match=r"4 records .* epochs 1 to 2, .* lacking in 'late'"):
            tg.resume(both, "numbers", new_incarnation=True)
    with pytest.raises(LossNotAccepted, match="lacking in 'late'"):
        tg.resume(both, "numbers", new_incarnation=True)

    resumed = tg.resume(both, "numbers", new_incarnation=True, accept_loss=True)
    assert resumed.incarnation == anew
    assert [(g.epoch, g.partition, g.lower, g.upper, g.code) for g in resumed.gaps][:1] == [
        (1, "p0", 3, 5, "TG-0554")
    ]
    assert tg.status(both).sources[0].lost == 2 * anew
    topic.write("p0", 9)
    run(both)
    gone_on = [(2, 7), (2, 8)] if anew == 1 else []
    assert rows(both, "late") == [(0, 1), (0, 2), (0, 3), (0, 10), *gone_on, (3, 9)]
    with pytest.raises(NothingToResume):
        tg.resume(both, "numbers", new_incarnation=True, accept_loss=True)


@pytest.mark.parametrize("written", [True, False])
def test_a_late_output_gets_the_rows_of_before_from_a_table_that_has_them(
    tmp_path: Path, topic: Topic, *, written: bool
) -> None:
    """Whether or not the new upstream has given anything yet."""
    flow = flow_of(tmp_path, topic)
    run(flow)
    topic.write("p0", 4)
    run(flow)
    topic.create("second")
    if written:
        topic.write("p0", 7, 8)
    run(flow, fails=UpstreamRecreated)
    tg.resume(flow, "numbers", new_incarnation=True)
    late = flow_of(tmp_path, topic)
    numbers = tg.RowStream(late, "numbers")
    late.sink("late", numbers, tg.ParquetSink(f"{tmp_path}/late"), start=tg.From("all"))
    run(late)
    assert rows(late, "late") == rows(late)
    topic.write("p0", 9)
    run(late)
    assert rows(late, "late") == rows(late)
    assert len(rows(late)) == 6 + 2 * written


def test_a_table_that_lacks_rows_of_before_gets_them_from_one_that_has_them(tmp_path: Path, topic: Topic) -> None:
    flow = flow_of(tmp_path, topic)
    flow.sink("late", tg.RowStream(flow, "numbers"), tg.ParquetSink(f"{tmp_path}/late"))
    run(flow)
    topic.write("p0", 4)
    run(flow_of(tmp_path, topic))
    recreate(topic)
    run(flow_of(tmp_path, topic), fails=UpstreamRecreated)
    tg.resume(flow_of(tmp_path, topic), "numbers", new_incarnation=True)
    run(flow, fails=OutputBelowIncarnation)
    taking = flow_of(tmp_path, topic)
    taking.sink("late", tg.RowStream(taking, "numbers"), tg.ParquetSink(f"{tmp_path}/late"), start=tg.From("all"))
    run(taking)
    assert rows(taking, "late") == rows(taking)
    assert len(rows(taking)) == 7
