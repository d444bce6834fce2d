"""When a look is a tick: by the clock, by what waits, by the end of a source, or when somebody asks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.binding import Observation
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.policy import LOOK, SECOND, Due, Every, Manual, Pace, Policy, enough, in_batch

NOW = datetime(2026, 11, 20, 17, tzinfo=UTC)
UNITS = {"rows": "records", "more_rows": "records", "files": "bytes"}


def dues(policy: Policy, *seconds: float) -> list[str]:
    """What it is time for at each of these seconds."""
    pace, found = Pace.of(policy), []
    for second in seconds:
        pace, due = pace.step(round(second * SECOND))
        found.append(due.name)
    return found


def probe(upper: int, end: int | None = None, *, more: bool = False, sealed: bool = False) -> Observation:
    frontier = Frontier({"p": upper}, sealed=sealed)
    return Observation(at=NOW, upper=frontier, end=Frontier({"p": upper if end is None else end}), more=more)


def is_enough(policy: Policy, bound: dict[str, int] | None = None, /, **probes: Observation) -> bool:
    frontiers = {source: Frontier({"p": (bound or {}).get(source, 0)}) for source in UNITS}
    return enough(policy, frontiers, probes, units=UNITS)


def test_by_time_alone_every_look_is_a_tick() -> None:
    assert dues(Every(10), 3, 9, 10, 11, 35) == ["TICK", "NOTHING", "TICK", "NOTHING", "TICK"]


def test_by_size_alone_no_look_is_a_tick_by_the_clock() -> None:
    assert dues(Every(records=5), 0, 0.4, 0.5, 3) == ["LOOK", "NOTHING", "LOOK", "LOOK"]


def test_by_both_the_looks_in_between_are_ticks_when_the_seconds_are_over() -> None:
    policy = Every(10, records=5, look=4)
    assert dues(policy, 0, 1, 4, 8, 9, 10, 12, 20) == [
        *("TICK", "NOTHING", "LOOK", "LOOK"),
        *("NOTHING", "TICK", "LOOK", "TICK"),
    ]


def test_on_demand_alone_the_clock_says_nothing() -> None:
    assert dues(Manual(), 0, 1, 1e6) == ["NOTHING"] * 3
    assert Pace.of(Manual()).wait(0) is None


@given(st.floats(0.001, 100), st.none() | st.floats(0.001, 100), st.lists(st.integers(0, 10**9), max_size=10))
def test_the_next_look_is_never_further_than_the_policy_says(
    seconds: float, look: float | None, clock: list[int]
) -> None:
    policy = Every(seconds) if look is None else Every(seconds, records=1, look=look)
    pace = Pace.of(policy)
    for now in clock:
        pace, _due = pace.step(now)
        wait = pace.wait(now)
        assert wait is not None
        assert 0 < wait <= round(policy.between * SECOND)
        assert pace.step(now + wait)[1] is not Due.NOTHING


def test_so_many_records_wait_over_all_sources() -> None:
    assert not is_enough(Every(records=10), rows=probe(4), more_rows=probe(5))
    assert is_enough(Every(records=10), rows=probe(4), more_rows=probe(6))


def test_what_is_bound_does_not_wait() -> None:
    assert not is_enough(Every(records=10), {"rows": 95}, rows=probe(100))
    assert is_enough(Every(records=10), {"rows": 90}, rows=probe(100))


def test_bytes_and_records_are_not_added_up() -> None:
    both = {"rows": probe(6), "files": probe(600)}
    assert not is_enough(Every(records=10), **both)
    assert not is_enough(Every(records=10, bytes=1000), **both)
    assert is_enough(Every(records=6, bytes=1000), **both)
    assert is_enough(Every(records=10, bytes=600), **both)


def test_what_waits_is_not_limited_by_what_one_epoch_takes() -> None:
    assert not is_enough(Every(records=100), rows=probe(50, 99, more=True))
    assert is_enough(Every(records=100), rows=probe(50, 100, more=True))


def test_a_source_that_has_more_and_cannot_say_how_much_has_enough() -> None:
    assert is_enough(Every(records=100), rows=probe(50, more=True))


def test_what_cannot_be_bound_yet_does_not_count() -> None:
    assert not is_enough(Every(records=100, bytes=100), files=probe(0, 10_000, more=True), rows=probe(99))


def test_a_probe_that_is_behind_does_not_count() -> None:
    assert not is_enough(Every(records=1), {"rows": 50}, rows=probe(40, 100))


def test_the_end_of_a_source_is_a_tick() -> None:
    assert is_enough(Every(records=100), rows=probe(1, sealed=True))
    assert is_enough(Every(records=100), rows=Observation(at=NOW, upper=ORIGIN.seal(), end=ORIGIN))


def test_by_time_or_on_demand_alone_nothing_is_enough() -> None:
    assert not is_enough(Every(10), rows=probe(10**9))
    assert not is_enough(Manual(), rows=probe(1, sealed=True))


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (Every(0.1), 0.1),
        (Every(3600), LOOK),
        (Every(records=5), LOOK),
        (Every(records=5, look=3), 3),
        (Every(1, records=5, look=3), 1),
        (Manual(), LOOK),
    ],
)
def test_in_a_batch_every_look_is_a_tick(policy: Policy, seconds: float) -> None:
    assert in_batch(policy) == Every(seconds)


@pytest.mark.parametrize(
    "values",
    [
        {},
        *({"seconds": bad} for bad in (0, -1, float("nan"), float("inf"), 1e-9, 2e9, True, "1", 10**400)),
        *({"records": bad} for bad in (0, -1, 1.0, True, "5")),
        *({"bytes": bad} for bad in (0, -1, 1.0, True, "5")),
        *({"records": 5, "look": bad} for bad in (0, float("nan"), False, "1")),
        {"look": 1},
        {"seconds": 1, "look": 1},
    ],
    ids=repr,
)
def test_a_policy_that_cannot_mean_anything_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Every(**values)


@pytest.mark.parametrize("tick", [0, -1, float("nan"), float("inf"), True, None, "1", Every, ()])
def test_a_tick_that_is_no_policy_is_refused_by_the_flow(tick: Any) -> None:
    with pytest.raises(InvalidArgument, match="tick cannot be"):
        tg.Dataflow("shop", store="sqlite:///shop.db", tick=tick)


def test_a_number_is_a_policy() -> None:
    assert tg.Dataflow("shop", store="sqlite:///shop.db", tick=3).policy == Every(3)
    assert tg.Dataflow("shop", store="sqlite:///shop.db").policy == Every(0.5)
    assert tg.Dataflow("shop", store="sqlite:///shop.db", tick=Manual()).policy == Manual()


def test_a_source_that_no_measure_of_the_policy_is_for_is_refused() -> None:
    files = tg.FileSource("in/*.jsonl", format=tg.Json("id long"))
    rows = tg.GeneratorSource(columns="id long")
    by_records = tg.Dataflow("shop", store="sqlite:///shop.db", tick=Every(records=5))
    by_records.source("rows", rows)
    with pytest.raises(InvalidArgument, match="it with seconds or bytes: the positions of 'files' count bytes"):
        by_records.source("files", files)
    by_bytes = tg.Dataflow("shop", store="sqlite:///shop.db", tick=Every(bytes=5))
    by_bytes.source("files", files)
    with pytest.raises(InvalidArgument, match="it with seconds or records: the positions of 'rows' count records"):
        by_bytes.source("rows", rows)
    for policy in (Every(1, records=5), Every(records=5, bytes=5), Manual()):
        both = tg.Dataflow("shop", store="sqlite:///shop.db", tick=policy)
        both.source("files", files)
        both.source("rows", rows)
