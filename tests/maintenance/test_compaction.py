"""Letting the history of a flow go: what is left is right, what is needed stays, and who needed it is told."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.outputs import OutputBelowSince
from tidegauge.errors.store import EpochBelowSince, FlowAlreadyRunning, HoldNotBound, LeaseLost
from tidegauge.flow.belonging import check_all
from tidegauge.flow.spec import FlowSpec
from tidegauge.maintenance.store import break_lease
from tidegauge.remap.store import LeaseHolder, Loaded, Store


class Shop:
    """A flow over files of one number a line, with an output for each name and a source that is mostly quiet."""

    def __init__(self, root: Path, store: str) -> None:
        self.root, self.store = root, store
        self.broken = False

    def flow(self, *outputs: str) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=self.store, tick=0.01)
        for source in ("orders", "quiet"):
            files = tg.FileSource(f"{self.root}/{source}/*.jsonl", format=tg.Json("id long"))
            stream = flow.source(source, files)
            for name in outputs or ("orders", "quiet"):
                if name.startswith("quiet") == (source == "quiet"):
                    steps = stream.map_batches(self.check) if name == "checked" else stream
                    flow.sink(name, steps, tg.ParquetSink(f"{self.root}/lake/{name}"))
        return flow

    def check(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.broken and batch.num_rows:
            raise ValueError("broken")
        return batch

    def write(self, number: int, *, source: str = "orders") -> None:
        (self.root / source).mkdir(exist_ok=True)
        with (self.root / source / "a.jsonl").open("a") as file:
            file.write(json.dumps({"id": number}) + "\n")

    def run(self, *numbers: int, outputs: tuple[str, ...] = (), quiet: int | None = None) -> tg.Dataflow:
        """Let a run find each of the numbers, so that each has an epoch of its own."""
        flow = self.flow(*outputs)
        for number in numbers:
            self.write(number)
            if number == quiet:
                self.write(number, source="quiet")
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        return flow


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    kind = request.param
    place = f"sqlite:///{tmp_path}/shop.db" if kind == "sqlite" else request.getfixturevalue("postgres").place()
    return Shop(tmp_path, place)


@pytest.fixture
def small(tmp_path: Path) -> Shop:
    return Shop(tmp_path, f"sqlite:///{tmp_path}/shop.db")


def rows(flow: tg.Dataflow, output: str, as_of: int | None = None) -> Counter[tuple[int, int]]:
    return Counter((row["id"], row["_epoch"]) for row in tg.read_arrow(flow, output, as_of=as_of).to_pylist())


def test_a_range_that_was_given_up_before_since_is_not_read_for_an_output_that_is_added_later(small: Shop) -> None:
    flow = small.run(0, 1)
    last = tg.bindings(flow).to_pylist()[-1]
    tg.skip(flow, "orders", last["partition"], last["lower"], last["position"])
    flow = small.run(2, 3)
    tg.compact(flow, before=3)
    flow = small.run(4, outputs=("orders", "late", "quiet"))
    assert rows(flow, "late") == Counter({(0, 3): 1, (2, 3): 1, (3, 3): 1, (4, 4): 1})


def test_t22_an_output_added_after_a_compaction_has_all_rows_those_from_before_since_with_since(shop: Shop) -> None:
    flow = shop.run(0, 1, 2, 3, 4, quiet=1)
    done = tg.compact(flow, before=3)
    assert (done.since, done.kept) == (3, "")
    flow = shop.run(5, outputs=("orders", "late", "quiet", "quiet_late"))
    assert rows(flow, "orders") == Counter({(n, n): 1 for n in range(6)})
    assert rows(flow, "late") == Counter({(n, max(n, 3)): 1 for n in range(6)})
    assert rows(flow, "quiet_late") == Counter({(1, 3): 1})
    assert rows(flow, "quiet") == Counter({(1, 1): 1})
    for output in ("orders", "late", "quiet", "quiet_late"):
        assert sum(rows(flow, output, as_of=3).values()) == (1 if output.startswith("quiet") else 4)
        for as_of in (0, 2, tg.epochs(flow)[0][0].minted_at - timedelta(microseconds=1)):
            with pytest.raises(EpochBelowSince):
                tg.read_arrow(flow, output, as_of=as_of)
    report = tg.status(flow)
    assert (report.since, [o.state for o in report.outputs]) == (3, ["live"] * 4)


def test_t24_a_flow_compacted_as_far_as_may_be_goes_on_without_loss(shop: Shop) -> None:
    flow = shop.run(0, 1, 2, quiet=0)
    assert tg.compact(flow, before=1000).since == 2
    assert tg.compact(flow, before=1000).kept == "epoch 2 is the last published"
    flow = shop.run(3, 4)
    assert rows(flow, "orders") == Counter({(n, n): 1 for n in range(5)})
    shop.write(7, source="quiet")  # its table ends before since, and holds all there was until now
    flow = shop.run(5)
    assert rows(flow, "quiet") == Counter({(0, 0): 1, (7, 5): 1})
    assert [record.epoch for record, _sizes in tg.epochs(flow)] == [2, 3, 4, 5]
    assert sum(size["orders"] for _record, size in tg.epochs(flow)) == 6 * len('{"id": 0}\n')
    explained = tg.explain(flow, 2)
    assert (explained.rows, {(s.source, s.lower) for s in explained.slices}) == (
        {"orders": 3, "quiet": 1},
        {("orders", 0), ("quiet", 0)},
    )
    with pytest.raises(EpochBelowSince):
        tg.explain(flow, 1)
    assert flow.bindings().column("epoch").to_pylist() == [2, 2, 3, 4, 5, 5]


def test_a_compaction_stops_at_the_last_epoch_that_an_output_holds(small: Shop) -> None:
    outputs = ("orders", "checked")
    flow = small.run(0, 1, outputs=outputs)
    small.broken = True
    with pytest.raises(tg.TidegaugeError, match="broken"):
        small.run(2, outputs=outputs)
    with pytest.raises(tg.TidegaugeError, match="broken"):
        small.run(3, outputs=outputs)
    done = tg.compact(flow, before=3)
    assert (done.since, done.wanted) == (1, 3)
    assert done.kept == "output 'checked' goes on from epoch 1, the last it holds"
    small.broken = False
    flow = small.run(4, outputs=outputs)
    assert rows(flow, "checked") == rows(flow, "orders") == Counter({(n, n): 1 for n in range(5)})


def test_an_output_that_was_left_out_during_a_compaction_is_not_filled_with_a_hole(small: Shop) -> None:
    small.run(0, 1, outputs=("orders", "other"))
    flow = small.run(2, 3, outputs=("orders",))
    assert tg.compact(flow, before=3).since == 3
    with pytest.raises(OutputBelowSince) as caught:
        small.run(4, outputs=("orders", "other"))
    assert caught.value.evidence == {"output": "other", "upper": 2, "since": 3}
    flow = small.run(5, outputs=("orders",))
    assert rows(flow, "orders") == Counter({(n, min(n, 4)): 1 for n in range(6)})


def test_a_hold_keeps_what_its_owner_reads(small: Shop) -> None:
    flow = small.run(0, 1, 2, 3)
    tg.hold(flow, "report", 1)
    done = tg.compact(flow, before=3)
    assert (done.since, done.kept) == (1, "'report' holds epoch 1")
    assert [(held.owner, held.epoch) for held in tg.status(flow).holds] == [("report", 1)]
    assert sum(rows(flow, "orders", as_of=1).values()) == 2
    with pytest.raises(HoldNotBound):
        tg.hold(flow, "report", 4)
    tg.release(flow, "report")
    with pytest.raises(UnknownName):
        tg.release(flow, "report")
    assert (tg.compact(flow, before=3).since, tg.status(flow).holds) == (3, ())
    assert tg.compact(flow, before=2).since == 3  # what is gone is gone


def test_a_time_means_the_newest_epoch_published_by_then(small: Shop) -> None:
    flow = small.run(0, 1, 2)
    minted = [record.minted_at for record, _ in tg.epochs(flow)]
    assert tg.compact(flow, before=minted[0] - timedelta(seconds=1)).since == 0
    assert tg.compact(flow, before=minted[1].replace(tzinfo=None).isoformat()).since == 1
    assert sum(rows(flow, "orders", as_of=tg.epochs(flow)[0][0].epoch).values()) == 2
    assert tg.compact(flow, before=datetime(9999, 1, 1, tzinfo=UTC)).since == 2


def test_a_flow_that_runs_is_not_compacted_and_its_driver_is_named(small: Shop) -> None:
    flow = small.run(0, 1, 2)
    env = Env()
    store = Store.open(small.store, env=env)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    with pytest.raises(FlowAlreadyRunning, match=f"process {lease.holder.pid}"):
        tg.compact(flow, before=1)
    tg.hold(flow, "report", 1)  # which anybody may
    lease.release()
    assert tg.compact(flow, before=1).since == 1
    lease = store.acquire("shop", holder=LeaseHolder.current(env))  # it was given back
    lease.release()
    store.close()


def test_a_compaction_that_slept_until_another_has_the_lease_says_so_and_changes_nothing(
    small: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = small.run(0, 1, 2)

    def asleep(spec: FlowSpec, store: Store, loaded: Loaded) -> None:
        check_all(spec, store, loaded)
        break_lease(flow, force=True)
        small.run(3, 4)  # its table is ahead of what was loaded

    monkeypatch.setattr("tidegauge.maintenance.compact.check_all", asleep)
    with pytest.raises(LeaseLost):
        tg.compact(flow, before=1)
    monkeypatch.undo()
    assert tg.status(flow).since == 0
    assert tg.compact(flow, before=1000).since == 4


@pytest.mark.parametrize("before", [-1, True, 1.5, None, "yesterday"])
def test_what_is_neither_an_epoch_nor_a_time_is_refused(small: Shop, before: object) -> None:
    flow = small.run(0)
    with pytest.raises(InvalidArgument):
        tg.compact(flow, before=before)  # type: ignore[arg-type]


def test_a_flow_that_never_ran_has_nothing_to_compact_or_hold(small: Shop) -> None:
    flow = small.flow()
    for attempt in (
        lambda: tg.compact(flow, before=1),
        lambda: tg.hold(flow, "report", 0),
        lambda: tg.release(flow, "x"),
    ):
        with pytest.raises(FlowNeverRan):
            attempt()
    assert not list(small.root.iterdir())
