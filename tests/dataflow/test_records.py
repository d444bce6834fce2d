"""Functions on records as functions on batches: they do what a plain loop does, and each key has one place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.dataflow import records
from tidegauge.errors.dataflow import UnroutableKey

NUMBERS = st.lists(st.integers(-9, 9))
KEYS = st.one_of(st.integers(), st.text(), st.binary())


def first(pair: tuple[Any, int]) -> Any:
    return pair[0]


@settings(deadline=None)
@given(NUMBERS)
def test_a_chain_is_what_its_links_are_one_after_the_other(batch: list[int]) -> None:
    before = list(batch)
    plus: records.RecordFunction[int, int] = records.map(lambda n: n + 1)
    chain = plus.filter(lambda n: n % 2 == 0).flat_map(lambda n: range(n)).map(str)
    assert chain(batch) == [str(m) for n in batch if (n + 1) % 2 == 0 for m in range(n + 1)]
    assert batch == before


def test_c40_four_maps_are_one_function() -> None:
    plus: records.RecordFunction[int, int] = (
        records.map(lambda n: n + 1).map(lambda n: n + 1).map(lambda n: n + 1).map(lambda n: n + 1)
    )
    assert plus([*range(10)]) == [*range(4, 14)]


def test_a_chain_makes_one_pass_record_by_record() -> None:
    seen: list[Any] = []

    def noting(name: str) -> Any:
        def note(n: int) -> int:
            seen.append((name, n))
            return n

        return note

    records.map(noting("a")).map(noting("b"))([1, 2])
    assert seen == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


@pytest.mark.parametrize("lift", [records.map, records.filter, records.flat_map])
def test_a_function_that_stops_the_iteration_loses_no_record_in_silence(lift: Any) -> None:
    def stops(n: int) -> Any:
        return next(iter([])) if n == 2 else [n]

    with pytest.raises(RuntimeError, match="StopIteration"):
        lift(stops)([1, 2, 3])


@settings(deadline=None)
@given(NUMBERS)
def test_splitting_keeps_every_record_and_its_sequence(batch: list[int]) -> None:
    def by_remainder(n: int) -> tuple[int, int]:
        return n % 3, 10 * n

    pieces = dict(records.split(by_remainder)(batch))
    assert pieces == {i: piece for i in range(3) if (piece := [10 * n for n in batch if n % 3 == i])}


@settings(deadline=None)
@given(NUMBERS, NUMBERS)
def test_folding_by_key_goes_on_from_batch_to_batch(first: list[int], second: list[int]) -> None:
    def parity(n: int) -> int:
        return n % 2

    fold: Any = records.fold_by(parity, list, lambda state, n: [*state, n])
    whole = fold({}, first + second)
    assert fold(fold({}, first), second) == whole
    assert whole == {k: found for k in (0, 1) if (found := [n for n in first + second if n % 2 == k])}


def test_a_key_whose_state_is_none_is_forgotten() -> None:
    def until_four(state: int | None, pair: tuple[str, int]) -> tuple[int | None, list[tuple[str, int]]]:
        total = (state or 0) + pair[1]
        return (None if total >= 4 else total), [(pair[0], total)]

    step = records.stateful(first, until_four)
    assert step({}, [("a", 1), ("b", 2), ("a", 3)]) == ({"b": 2}, [("a", 1), ("b", 2), ("a", 4)])
    assert step({}, [("a", 5), ("a", 1)]) == ({"a": 1}, [("a", 5), ("a", 1)])


@settings(deadline=None)
@given(st.lists(KEYS), st.integers(1, 5), st.integers(1, 4))
def test_routing_keeps_every_record_and_gives_equal_keys_one_worker(keys: list[Any], peers: int, cut: int) -> None:
    route = records.route(first)
    batch = [(key, i) for i, key in enumerate(keys)]
    pieces = route(batch, peers)
    assert all(piece for _, piece in pieces)
    assert sorted(p for p, _ in pieces) == sorted({p for p, _ in pieces})
    home = {key: peer for peer, piece in pieces for key, _ in piece}
    assert home == {key: records.worker_of(key, peers) for key in keys}
    assert sorted(i for _, piece in pieces for _, i in piece) == [*range(len(keys))]
    for peer, piece in pieces:
        assert 0 <= peer < peers
        assert [i for _, i in piece] == sorted(i for _, i in piece)
    for start in range(0, len(batch), cut):
        for peer, piece in route(batch[start : start + cut], peers):
            assert {home[key] for key, _ in piece} == {peer}


def test_c69_an_integer_goes_to_its_remainder() -> None:
    assert records.route(lambda n: n)([*range(6)], 4) == [(0, [0, 4]), (1, [1, 5]), (2, [2]), (3, [3])]
    assert [records.worker_of(key, 3) for key in (-1, True, 2**80)] == [2, 1, 2**80 % 3]


def test_text_has_the_same_worker_in_every_process() -> None:
    check_value_of_crc_32 = 0xCBF43926
    assert records.worker_of("123456789", 2**32) == check_value_of_crc_32
    assert records.worker_of("Ü", 97) == records.worker_of("Ü".encode(), 97)
    assert records.worker_of("\ud800", 97) in range(97)


@pytest.mark.parametrize("key", [None, 1.5, (1, 2), ["a"], object()])
def test_a_key_that_differs_between_processes_is_refused(key: Any) -> None:
    with pytest.raises(UnroutableKey, match=f"of type {type(key).__name__}"):
        records.route(lambda _: key)(["record"], 2)


def test_a_long_key_is_not_quoted_whole() -> None:
    with pytest.raises(UnroutableKey) as caught:
        records.worker_of(tuple(range(10_000)), 2)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 400
