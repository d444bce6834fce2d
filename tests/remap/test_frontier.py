"""Frontiers: what they may hold, how they compare, and that a deferred one cannot be told from any other."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.dataflow import Antichain
from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.frontier import GAUGE, ORIGIN, Frontier
from tidegauge.testing.strategies import frontiers as any_frontiers

PARTITIONS = ("a", "b", "c", "d")
positions = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 3))


@st.composite
def frontiers(draw: st.DrawFn) -> Frontier:
    """Frontiers, some of them sealed, some deferred; their integers are not always the same objects."""
    at = {p: int(f"{2**70 * (n > 2) + n}") for p, n in draw(positions).items()}
    made = Frontier(at, sealed=draw(st.booleans()))
    return Frontier.deferred(lambda: dict(made.items()), sealed=made.sealed) if draw(st.booleans()) else made


@given(frontiers(), frontiers(), frontiers())
def test_comparing_says_what_comparing_each_position_says_whatever_was_compared_before(
    a: Frontier, b: Frontier, c: Frontier
) -> None:
    for one, other in ((a, b), (a, c), (a, b), (b, a), (c, a), (a, a)):
        moved = {p: (other[p], one[p]) for p in PARTITIONS if one[p] > other[p]}
        back = any(one[p] < other[p] for p in PARTITIONS)
        assert one.since(other) == moved
        assert list(one.since(other)) == sorted(moved)
        assert one.follows(other) == (one == other if other.sealed else not back)
        assert (one == other) == (dict(one.items()) == dict(other.items()) and one.sealed == other.sealed)
        assert other.less_equal(one) == (one.sealed or (not other.sealed and not back))
        assert one.distance(other) == sum(upper - lower for lower, upper in moved.values())


@given(st.sets(st.integers(0, 999), max_size=8), st.sets(st.integers(0, 999), max_size=3), st.booleans())
def test_of_a_thousand_partitions_those_are_found_that_moved_or_went_back(
    moved: set[int], gone_back: set[int], shuffled: bool
) -> None:
    names = [f"p{i:03d}" for i in range(1000)]
    before = Frontier({name: 10**6 + i for i, name in enumerate(names)})
    after = {name: 10**6 + i + (i in moved) - 2 * (i in gone_back) for i, name in enumerate(names)}
    now = Frontier({name: after[name] for name in reversed(names)} if shuffled else after)
    expected = {names[i]: (10**6 + i, 10**6 + i + 1) for i in sorted(moved - gone_back)}
    assert list(now.since(before).items()) == list(expected.items())
    assert now.follows(before) == (not gone_back)
    assert (now == before) == (not moved and not gone_back)


@given(any_frontiers(), any_frontiers())
def test_readings_sort_as_their_order_has_them_and_one_at_the_end_sorts_last(a: Frontier, b: Frontier) -> None:
    if GAUGE.less_equal(a, b) and not GAUGE.less_equal(b, a):
        assert GAUGE.sort_key(a) < GAUGE.sort_key(b)
    if a.sealed and not b.sealed:
        assert Antichain([a, b], GAUGE).elements() == (b,)


def test_what_since_returned_may_be_changed_by_its_owner() -> None:
    a, b = Frontier({"a": 1}), Frontier({"a": 3})
    b.since(a).clear()
    assert b.since(a) == {"a": (1, 3)}


def test_a_frontier_does_not_keep_those_alive_that_it_was_compared_with() -> None:
    earlier, later = Frontier({"a": 1}), Frontier({"a": 2})
    assert later.follows(earlier)
    gone = ref(earlier)
    del earlier
    gc.collect()
    assert gone() is None
    assert later.since(Frontier({"b": 1})) == {"a": (0, 2)}


LOOKS: dict[str, Callable[[Frontier], Any]] = {
    "pickle": lambda f: pickle.loads(pickle.dumps(f)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "hash": hash,
    "repr": repr,
    "bool": bool,
    "len": len,
    "equal": lambda f: f == Frontier({"p0": 5, "p1": 2}),
    "equal, from the other side": lambda f: Frontier({"p0": 5, "p1": 2}) == f,
    "as a key": lambda f: {f: 1},
    "a position": lambda f: (f["p0"], f["p7"], f.get("p7"), "p1" in f, "p7" in f),
    "all of them": lambda f: (list(f), list(f.items()), list(f.values()), dict(f), {**f}),
    "less_equal": lambda f: (f.less_equal(ORIGIN), ORIGIN.less_equal(f), f.less_equal(f)),
    "follows": lambda f: (f.follows(ORIGIN), ORIGIN.follows(f), f.follows(f)),
    "join": lambda f: (f.join(Frontier({"p2": 1})), Frontier({"p2": 1}).join(f)),
    "meet": lambda f: (f.meet(Frontier({"p0": 1})), Frontier({"p0": 1}).meet(f)),
    "since": lambda f: (f.since(ORIGIN), ORIGIN.since(f)),
    "distance": lambda f: f.distance(ORIGIN),
    "seal": Frontier.seal,
    "sealed": lambda f: f.sealed,
}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("look", LOOKS)
def test_a_deferred_frontier_is_like_any_other_at_the_first_look_and_after(look: str, sealed: bool) -> None:
    asked: list[str] = []

    def lay_out() -> dict[str, int]:
        asked.append(look)
        return {"p0": 5, "p1": 2}

    plain, deferred = Frontier({"p0": 5, "p1": 2}, sealed=sealed), Frontier.deferred(lay_out, sealed=sealed)
    assert asked == []
    for _ in range(2):
        assert LOOKS[look](deferred) == LOOKS[look](plain)
        assert deferred == plain
        assert hash(deferred) == hash(plain)
    assert len(asked) == 1


def test_an_error_while_a_frontier_is_laid_out_is_told_and_the_next_look_tries_again() -> None:
    answers: list[Any] = [{"p0": 5}]

    def lay_out() -> Any:
        if len(answers) == 1:
            answers.append(None)
            raise OSError("not now")
        return answers[0]

    frontier = Frontier.deferred(lay_out)
    with pytest.raises(OSError, match="not now"):
        len(frontier)
    assert frontier == Frontier({"p0": 5})


def test_what_a_frontier_does_not_have_it_does_not_have() -> None:
    for frontier in (Frontier(), Frontier.deferred(dict), Frontier.__new__(Frontier)):
        assert not hasattr(frontier, "positions")
        with pytest.raises((AttributeError, TypeError)):
            frontier.positions = {}  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        len(Frontier.__new__(Frontier))


@pytest.mark.parametrize(
    "wrong",
    [{"p": -1}, {"p": 5.0}, {"p": 0.0}, {"p": "5"}, {"p": None}, {"p": True}, {"p": False}, {0: 5}, {None: 0}],
)
def test_what_is_no_position_is_refused(wrong: dict[Any, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Frontier(wrong)
    with pytest.raises(InvalidArgument):
        Frontier({"a": 1, **wrong, "z": 2})


def test_positions_of_any_size_are_kept_exactly_and_zeros_are_not_kept() -> None:
    large = 2**53 + 1
    assert dict(Frontier({"a": large, "b": 0})) == {"a": large}
    assert Frontier({"a": 0}) == ORIGIN
    given = {"a": 1}
    kept = Frontier(given)
    given["a"] = 7
    assert kept["a"] == 1
