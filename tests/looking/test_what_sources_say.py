"""Sources in whole flows: states that survive, places that no clock has, and clocks that change their kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.flow.minting import at, begin, rows, sizes
from tests.flow.minting import state as state_of
from tests.flow.upstream import Topic
from tests.remap.store.raw import dump

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.fromtime import InvalidPlace
from tidegauge.errors.store import ClockChanged, FrontierRegressed, WatermarkRegressed
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.fromtime import NUMBERED, SourceState
from tidegauge.remap.frontier import Frontier


@dataclass
class Teller:
    """Changes what a source says of itself, as it is told to, and remembers what the source was told."""

    change: Callable[[Observation], Observation] = lambda probe: probe
    bound: list[Bound] = field(default_factory=list)

    def __call__(self, probe: Observation, bound: Bound) -> Observation:
        self.bound.append(bound)
        return self.change(probe)


def etag(value: str, *, at: datetime | None = None) -> SourceState:
    return SourceState(kind="http/etag", source_id="https://example.org", value=value, watermark=at)


@pytest.fixture
def teller() -> Teller:
    return Teller()


@pytest.fixture
def topic(tmp_path: Path, teller: Teller) -> Topic:
    made = Topic(tmp_path / "topic", teller)
    made.create("it")
    return made


def flow_of(root: Path, source: Any) -> tg.Dataflow:
    made = tg.Dataflow("said", store=f"sqlite:///{root}/flow.db", tick=0.01)
    made.sink("numbers", made.source("numbers", source), tg.ParquetSink(f"{root}/numbers"))
    return made


def run(flow: tg.Dataflow) -> int:
    return flow.run("caught-up", engine=tg.LocalEngine(threads=0)).published


def test_the_next_poll_is_told_the_newest_state_in_this_run_and_in_the_next(
    tmp_path: Path, topic: Topic, teller: Teller
) -> None:
    flow = flow_of(tmp_path, topic)
    teller.change = lambda probe: replace(probe, state=etag("A"))
    topic.write("p0", 1)
    assert run(flow) == 1
    teller.change = lambda probe: replace(probe, state=etag("B"))
    assert run(flow) == 2  # an epoch of nothing but the state
    assert [dict(bound) for _, bound in tg.epochs(flow)] == [{"numbers": 1}, {}]
    assert tg.read_arrow(flow, "numbers").to_pylist() == [{"n": 1, "_epoch": 0}]
    assert run(flow) == 2  # an idle poll mints nothing
    teller.bound.clear()
    topic.write("p0", 2)
    assert run(flow_of(tmp_path, topic)) == 3
    assert {bound.state for bound in teller.bound} == {etag("B")}
    teller.change = lambda probe: replace(probe, state=None)
    run(flow)
    assert teller.bound[-1].state == etag("B")
    tg.status(flow)
    assert teller.bound[-1].state == etag("B")


NAN: Any = float("nan")

WRONG: dict[str, tuple[Callable[[Observation], Any], type[tg.TidegaugeError]]] = {
    "too large": (lambda probe: replace(probe, upper=Frontier({"p0": 2**63})), InvalidPlace),
    "a boolean": (lambda probe: replace(probe, upper=Frontier({"p0": True})), InvalidArgument),
    "negative": (lambda probe: replace(probe, upper=Frontier({"p0": -1})), InvalidArgument),
    "a float": (lambda probe: replace(probe, upper=Frontier({"p0": 2.0})), InvalidArgument),  # type: ignore[dict-item]
    "no name": (lambda probe: replace(probe, upper=Frontier({"p\0": 1})), InvalidPlace),
    "no name in the facts": (lambda probe: replace(probe, details={"p" * 1025: {}}), InvalidPlace),
    "facts that are no mapping": (lambda probe: replace(probe, details={"p0": "it"}), InvalidArgument),  # type: ignore[dict-item]
    "no facts": (lambda probe: replace(probe, details=[("p0", {})]), InvalidArgument),  # type: ignore[arg-type]
    "a fact that is no JSON": (lambda probe: replace(probe, details={"p0": {"at": probe.at}}), InvalidArgument),  # type: ignore[dict-item]
    "a fact that is no number": (lambda probe: replace(probe, details={"p0": {"n": NAN}}), InvalidArgument),
    "a fact without a name": (lambda probe: replace(probe, details={"p0": {7: "x"}}), InvalidArgument),  # type: ignore[dict-item]
    "an identity that is no text": (lambda probe: replace(probe, identity=7), InvalidArgument),  # type: ignore[arg-type]
    "an identity with a NUL": (lambda probe: replace(probe, identity="a\0b"), InvalidArgument),
    "an identity that is no Unicode": (lambda probe: replace(probe, identity="\ud800"), InvalidArgument),
    "an identity without an end": (lambda probe: replace(probe, identity="x" * 5000), InvalidArgument),
    "no schema": (lambda probe: replace(probe, schema=["n"]), InvalidArgument),
    "no note": (lambda probe: replace(probe, note=7), InvalidArgument),  # type: ignore[arg-type]
    "no lower bound": (lambda probe: replace(probe, lower=None), InvalidArgument),  # type: ignore[arg-type]
    "no time": (lambda probe: replace(probe, at="now"), InvalidArgument),  # type: ignore[arg-type]
    "no state": (lambda probe: replace(probe, state="etag"), InvalidArgument),  # type: ignore[arg-type]
    "no probe": (lambda _probe: None, InvalidArgument),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_source_that_says_what_cannot_be_stalls_and_the_others_go_on(
    tmp_path: Path, topic: Topic, teller: Teller, how: str
) -> None:
    teller.change, error = WRONG[how]
    topic.write("p0", 1, 2)
    run = begin(tmp_path, 1.0, wrong=topic, right=rows(rate=10))
    at(run, 3)
    assert (state_of(run, "wrong"), state_of(run, "right")) == ("stalled", "running")
    said = run.runner.board.sources["wrong"].error
    assert isinstance(said, error)
    assert "'wrong'" in said.summary or error is InvalidPlace or how in ("a boolean", "negative", "a float")
    assert sizes(run)
    assert all(set(bound) == {"right"} for bound in sizes(run))
    assert tg.status(run.flow).sources[0].state == "stalled"
    teller.change = lambda probe: probe
    at(run, 8)
    assert state_of(run, "wrong") == "running"
    assert sum(bound.get("wrong", 0) for bound in sizes(run)) == 2
    run.runner.close()


@pytest.mark.parametrize("left", [{"p0": 1, "p1": 1}, {"p1": 5}, {}], ids=["behind", "a partition gone", "nothing"])
def test_a_source_that_goes_back_stalls_and_what_is_bound_stays(
    tmp_path: Path, topic: Topic, teller: Teller, left: dict[str, int]
) -> None:
    topic.write("p0", 1, 2)
    topic.write("p1", 3)
    run = begin(tmp_path, 1.0, wrong=topic, right=rows(rate=10))
    at(run, 3)
    bound = sum(epoch.get("wrong", 0) for epoch in sizes(run))
    teller.change = lambda probe: replace(probe, upper=Frontier(left), end=Frontier(left))
    at(run, 6)
    said = run.runner.board.sources["wrong"].error
    assert (state_of(run, "wrong"), state_of(run, "right")) == ("stalled", "running")
    assert isinstance(said, FrontierRegressed)
    assert "'wrong' cannot go back: {'p0': " in said.summary
    assert bound == sum(epoch.get("wrong", 0) for epoch in sizes(run)) == 3
    teller.change = lambda probe: probe
    topic.write("p0", 4)
    at(run, 20)
    assert state_of(run, "wrong") == "running"
    assert sum(epoch.get("wrong", 0) for epoch in sizes(run)) == 4
    run.runner.close()


def test_a_source_whose_watermark_goes_back_stalls(tmp_path: Path, topic: Topic, teller: Teller) -> None:
    late = datetime.fromisoformat("2026-11-20T12:00:00+00:00")
    teller.change = lambda probe: replace(probe, state=etag("A", at=late))
    topic.write("p0", 1)
    run = begin(tmp_path, 1.0, wrong=topic)
    at(run, 2)
    topic.write("p0", 2)
    teller.change = lambda probe: replace(probe, state=etag("B", at=late.replace(hour=11)))
    at(run, 4)
    assert state_of(run, "wrong") == "stalled"
    assert isinstance(run.runner.board.sources["wrong"].error, WatermarkRegressed)
    assert sizes(run) == [{"wrong": 1}]
    teller.change = lambda probe: replace(probe, state=etag("C", at=late.replace(hour=13)))
    at(run, 10)
    assert sizes(run) == [{"wrong": 1}, {"wrong": 1}]
    run.runner.close()


def test_partitions_that_the_declared_clock_does_not_have_stall_the_source(tmp_path: Path, topic: Topic) -> None:
    topic.write("p0", 1)
    topic.write("7", 2)
    run = begin(tmp_path, 1.0, wrong=replace(topic, from_time=NUMBERED))
    at(run, 3)
    assert state_of(run, "wrong") == "stalled"
    assert sizes(run) == []
    run.runner.close()


def test_a_clock_that_changed_its_kind_is_refused_and_the_store_is_as_it_was(tmp_path: Path, topic: Topic) -> None:
    topic.write("7", 1)
    flow = flow_of(tmp_path, replace(topic, from_time=NUMBERED))
    run(flow)
    before = dump(flow.store)
    topic.write("7", 2)
    with pytest.raises(ClockChanged, match="'partitioned-integers' and is declared with 'partitioned'"):
        run(flow_of(tmp_path, topic))
    assert dump(flow.store) == before
    run(flow)
    assert tg.read_arrow(flow, "numbers").num_rows == 2


def test_what_is_no_clock_is_refused(tmp_path: Path, topic: Topic) -> None:
    wrong: Any = "lsn"
    with pytest.raises(InvalidArgument, match="from_time"):
        run(flow_of(tmp_path, replace(topic, from_time=wrong)))
