"""What a source says is bound only when its clock has such places, and its watermark did not go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.fromtime import InvalidPlace
from tidegauge.errors.store import WatermarkRegressed
from tidegauge.remap.binding import Bound, Observation, Proposal
from tidegauge.remap.fromtime import GTID, LSN, NUMBERED, PARTITIONS, SEQUENCE, FromTime, SourceState
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.mint import checked_observation, mint
from tidegauge.remap.table import RemapTable
from tidegauge.remap.timeline import Timeline

NOW = datetime(2026, 11, 20, 17, tzinfo=UTC)
LARGEST = 2**63 - 1
NO_FRONTIER: Any = {"p0": 1}


def probe(positions: Mapping[str, int], **rest: Any) -> Observation:
    return Observation(at=NOW, upper=Frontier(positions), end=ORIGIN, **rest)


def state(value: str, *, hour: int | None = None) -> SourceState:
    return SourceState(
        kind="cursor", source_id="it", value=value, watermark=None if hour is None else NOW.replace(hour=hour)
    )


@pytest.mark.parametrize(
    ("clock", "positions"),
    [
        (PARTITIONS, {"p0": LARGEST}),
        (NUMBERED, {"-7": 1}),
        (LSN, {"wal": LARGEST}),
        (SEQUENCE, {"polls": 1}),
        (GTID, {"3e11fa47-71ca-11e1-9e33-c80aa9429562": 2}),
    ],
)
def test_places_that_the_clock_has_pass(clock: FromTime, positions: dict[str, int]) -> None:
    said = probe(positions)
    assert checked_observation("it", clock, Bound(), said) is said


@pytest.mark.parametrize(
    ("clock", "positions"),
    [
        (PARTITIONS, {"p0": LARGEST + 1}),
        (PARTITIONS, {"p0": 5, "p\0": 1}),
        (PARTITIONS, {"p" * 1025: 1}),
        (PARTITIONS, {"\ud800": 1}),
        (NUMBERED, {"p0": 1}),
        (NUMBERED, {"07": 1}),
        (LSN, {"p0": 1}),
        (SEQUENCE, {"pages": 1}),
        (GTID, {"3e11fa47-71ca-11e1-9e33-c80aa9429562": 1}),
    ],
)
def test_places_that_the_clock_does_not_have_are_refused(clock: FromTime, positions: dict[str, int]) -> None:
    with pytest.raises(InvalidPlace):
        checked_observation("it", clock, Bound(), probe(positions))


@pytest.mark.parametrize("position", [True, -1, 1.0, "1", None])
def test_what_is_no_position_is_refused_before_there_is_a_probe(position: Any) -> None:
    with pytest.raises(InvalidArgument):
        probe({"p0": position})


def test_facts_of_what_cannot_be_a_partition_are_refused() -> None:
    with pytest.raises(InvalidPlace):
        checked_observation("it", PARTITIONS, Bound(), probe({}, details={"p\0": {"path": "a"}}))


def test_facts_may_be_whatever_json_can_say() -> None:
    said = probe({}, details={"p0": {"path": "\0é\ud800", "n": 2**70, "more": {"x": [1, None, True, 0.5]}}})
    assert checked_observation("it", PARTITIONS, Bound(), said) is said


def test_only_what_moved_is_looked_at() -> None:
    """What is bound already cannot be taken back, and may be very wide."""
    bound = Bound(frontier=Frontier({"old": 5, "7": 1}))
    said = probe({"old": 5, "7": 2})
    assert checked_observation("it", NUMBERED, bound, said) is said


@pytest.mark.parametrize(("before", "after"), [(None, None), (None, 5), (5, 5), (5, 6)])
def test_a_watermark_may_stay_or_advance(before: int | None, after: int | None) -> None:
    said = probe({}, state=state("b", hour=after))
    assert checked_observation("it", PARTITIONS, Bound(state=state("a", hour=before)), said) is said
    assert checked_observation("it", PARTITIONS, Bound(), said) is said


@pytest.mark.parametrize("after", [4, None])
def test_a_watermark_cannot_go_back(after: int | None) -> None:
    with pytest.raises(WatermarkRegressed, match="'it'"):
        checked_observation(
            "it", PARTITIONS, Bound(state=state("a", hour=5)), probe({}, state=state("b", hour=after))
        )


@pytest.mark.parametrize(
    "said",
    [
        probe({}, state="etag"),
        probe({}, state={"etag": 1}),
        replace(probe({}), upper=NO_FRONTIER),
        replace(probe({}), end=NO_FRONTIER),
        replace(probe({}), at=NOW.replace(tzinfo=None)),
        "a probe",
        None,
    ],
)
def test_what_is_no_state_no_frontier_no_instant_or_no_probe_is_refused(said: Any) -> None:
    with pytest.raises(TidegaugeError, match="'it'"):
        checked_observation("it", PARTITIONS, Bound(), said)


def test_another_state_is_minted_although_nothing_moved() -> None:
    here = Frontier({"polls": 1})
    told = Observation(at=NOW, upper=here, end=here, state=state("b"))
    minted = mint({"it": here}, {"it": told}, states={"it": state("a")})
    assert (minted["it"].frontier, minted["it"].state) == (here, state("b"))
    assert mint({"it": here}, {"it": told})["it"].state == state("b")


def test_the_same_state_is_not_minted_again_and_no_state_keeps_the_one_that_is_bound() -> None:
    here = Frontier({"polls": 1})
    same = Observation(at=NOW, upper=here, end=here, state=state("a"))
    assert mint({"it": here}, {"it": same}, states={"it": state("a")}) == {}
    assert mint({"it": here}, {"it": probe({"polls": 1})}, states={"it": state("a")}) == {}


def test_the_state_of_a_probe_that_went_back_or_came_after_the_end_is_dropped_with_it() -> None:
    told = Observation(at=NOW, upper=Frontier({"polls": 1}), end=ORIGIN, state=state("b"))
    assert mint({"it": Frontier({"polls": 2})}, {"it": told}) == {}
    end = Frontier({"polls": 1}, sealed=True)
    assert mint({"it": end}, {"it": replace(told, upper=end)}) == {}


def test_a_binding_without_a_state_keeps_the_one_before() -> None:
    timeline = Timeline({"it": RemapTable("it")})
    timeline.append(0, {"it": Proposal(frontier=Frontier({"polls": 1}), state=state("a"))})
    timeline.append(1, {"it": Proposal(frontier=Frontier({"polls": 2}))})
    assert timeline.bound("it").state == state("a")
    assert timeline.states() == {"it": state("a")}
