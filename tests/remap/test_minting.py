"""What a tick binds: admission shares a limit fairly, minting binds only what is new."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.remap.binding import Observation, Proposal
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.mint import admit, mint
from tidegauge.testing.strategies import frontiers

NOW = datetime(2026, 11, 20, 17, tzinfo=UTC)

wide = frontiers(partitions=st.sampled_from("abcdef"), positions=st.integers(0, 40), max_size=6, sealed=False)


def probe(upper: Frontier) -> Observation:
    return Observation(at=NOW, upper=upper, end=upper)


@settings(deadline=None)
@given(wide, wide, st.integers(1, 100))
def test_what_is_admitted_is_the_limit_or_all_there_is(lower: Frontier, more: Frontier, limit: int) -> None:
    upper = lower.join(more)
    admitted = admit(lower, upper, limit)
    assert lower.less_equal(admitted)
    assert admitted.less_equal(upper)
    assert admitted.distance(lower) == min(limit, upper.distance(lower))


@settings(deadline=None)
@given(wide, wide, st.integers(1, 100))
def test_no_partition_waits_for_one_that_got_more(lower: Frontier, more: Frontier, limit: int) -> None:
    upper = lower.join(more)
    admitted = admit(lower, upper, limit)
    taken = {p: admitted[p] - lower[p] for p in upper}
    for partition in upper:
        if admitted[partition] < upper[partition]:
            assert taken[partition] >= max(taken.values()) - 1


@settings(deadline=None)
@given(wide, st.integers(1, 7))
def test_a_backlog_is_worked_off_in_as_few_epochs_as_the_limit_allows(upper: Frontier, limit: int) -> None:
    at, ticks = ORIGIN, 0
    while at != upper:
        at, ticks = admit(at, upper, limit), ticks + 1
    assert ticks == -(-upper.distance(ORIGIN) // limit)


def test_small_partitions_are_served_before_large_ones_take_the_rest() -> None:
    assert admit(ORIGIN, Frontier({"big": 1000, "small": 3}), 10) == Frontier({"big": 7, "small": 3})


def test_no_partition_starves_when_the_limit_is_smaller_than_their_number() -> None:
    upper, at = Frontier(dict.fromkeys("abcde", 10)), ORIGIN
    for _ in range(5):
        at = admit(at, upper, 2)
    assert all(at[partition] > 0 for partition in "abcde")


def test_the_seal_is_admitted_with_the_last_position() -> None:
    end = Frontier({"a": 5, "b": 5}, sealed=True)
    first = admit(ORIGIN, end, 9)
    assert not first.sealed
    assert admit(first, end, 9) == end
    assert admit(end, Frontier({"a": 9}), 9) == end


def test_a_partition_that_went_back_upstream_stays_where_it_is_bound() -> None:
    assert admit(Frontier({"a": 5}), Frontier({"a": 3, "b": 2}), 10) == Frontier({"a": 5, "b": 2})


def test_a_limit_that_admits_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        admit(ORIGIN, Frontier({"a": 5}), 0)


def test_only_sources_that_advanced_or_were_sealed_are_bound() -> None:
    bound = {"idle": Frontier({"p": 5}), "moved": Frontier({"p": 5}), "ended": Frontier({"p": 5}), "unasked": ORIGIN}
    detail = {"q": {"path": "q.jsonl"}}
    moved = Observation(at=NOW, upper=Frontier({"p": 5, "q": 1}), end=Frontier({"p": 9, "q": 1}), details=detail)
    probes = {"idle": probe(bound["idle"]), "moved": moved, "ended": probe(bound["ended"].seal())}
    assert mint(bound, probes) == {
        "ended": Proposal(frontier=Frontier({"p": 5}, sealed=True)),
        "moved": Proposal(frontier=Frontier({"p": 5, "q": 1}), details=detail),
    }


@pytest.mark.parametrize(
    "behind",
    [Frontier({"a": 4, "b": 5}), Frontier({"a": 4, "b": 9}), Frontier({"a": 9}), Frontier({"a": 4}, sealed=True)],
)
def test_t13_a_probe_that_is_behind_in_any_partition_is_dropped(behind: Frontier) -> None:
    assert mint({"s": Frontier({"a": 5, "b": 5})}, {"s": probe(behind)}) == {}


def test_t15_an_idle_tick_mints_nothing() -> None:
    assert mint({"s": Frontier({"a": 5})}, {"s": probe(Frontier({"a": 5}))}) == {}
    assert mint({"s": Frontier({"a": 5})}, {}) == {}
    assert mint({"s": ORIGIN}, {"s": probe(ORIGIN)}) == {}


def test_t16_a_sealed_source_is_never_bound_again() -> None:
    sealed = Frontier({"a": 5}, sealed=True)
    assert mint({"s": sealed}, {"s": probe(Frontier({"a": 9}))}) == {}
    assert mint({"s": sealed}, {"s": probe(Frontier({"a": 9}, sealed=True))}) == {}


def test_a_probe_of_a_source_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UnknownName):
        mint({"orders": ORIGIN}, {"oders": probe(ORIGIN)})


@settings(deadline=None)
@given(wide, wide, st.booleans())
def test_a_frontier_follows_another_iff_no_partition_goes_back(a: Frontier, b: Frontier, sealed: bool) -> None:
    after = b.seal() if sealed else b
    assert after.follows(a) == all(b[p] >= a[p] for p in a)
    assert after.follows(a.seal()) == (after == a.seal())
