"""What follows from the records of a progress topic, for any records: the last one of an output counts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.kafkasink import DamagedProgress, ProgressRegressed
from tidegauge.errors.sinks import TableOfAnotherIncarnation
from tidegauge.sinks.kafka.progress import LEAST, ProgressRecord, Record, key_of, resumed, starts, step
from tidegauge.sinks.protocol import OutputId

OUTPUT = OutputId("shop", "orders", "a" * 32)

records = st.builds(
    ProgressRecord,
    flow=st.just("shop"),
    output=st.just("orders"),
    incarnation=st.sampled_from(["a" * 32, "b" * 32]),
    topic_id=st.sampled_from(["T1", "T2"]),
    upper=st.integers(0, 5),
    write=st.text(max_size=3),
    messages=st.integers(0, 9),
    size=st.integers(0, 9),
)


def after(values: list[ProgressRecord | None]) -> ProgressRecord | None:
    state: ProgressRecord | None = None
    for offset, value in enumerate(values):
        state = step(state, Record(offset, None if value is None else value.encode()), topic="p")
    return state


@given(records)
def test_a_record_says_what_was_written(progress: ProgressRecord) -> None:
    assert ProgressRecord.decode(progress.encode(), topic="p", offset=0) == progress


@given(st.lists(st.none() | records, max_size=8))
def test_the_last_record_counts_and_no_life_of_an_output_goes_back(values: list[ProgressRecord | None]) -> None:
    goes_back = any(
        one is not None
        and other is not None
        and (one.incarnation, one.topic_id) == (other.incarnation, other.topic_id)
        and other.upper < one.upper
        for one, other in pairwise(values)
    )
    if goes_back:
        with pytest.raises(ProgressRegressed):
            after(values)
    else:
        assert after(values) == (values[-1] if values else None)


@given(st.none() | records)
def test_only_the_record_of_this_topic_and_this_store_is_resumed(last: ProgressRecord | None) -> None:
    if last is None or last.topic_id != "T1":
        found = resumed(last, OUTPUT, topic="orders", topic_id="T1")
        assert (found.upper, found.messages, found.topic_id) == (0, 0, "T1")
    elif last.incarnation != OUTPUT.incarnation:
        with pytest.raises(TableOfAnotherIncarnation):
            resumed(last, OUTPUT, topic="orders", topic_id="T1")
    else:
        assert resumed(last, OUTPUT, topic="orders", topic_id="T1") == last


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_looks_go_back_to_the_beginning_and_cost_little_more_than_the_whole(low: int, size: int) -> None:
    found = starts(low, low + size)
    assert found == sorted(found, reverse=True)
    assert (found[-1:] == [low]) == (size > 0)
    assert sum(low + size - start for start in found) <= size * 10 / 9
    assert all(low + size - start >= LEAST for start in found[:-1])


WHOLE = json.loads(ProgressRecord("shop", "orders", "a" * 32, "T1").encode())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 100_000,
        json.dumps(WHOLE | {"version": 2}).encode(),
        json.dumps(WHOLE | {"upper": -1}).encode(),
        json.dumps(WHOLE | {"upper": True}).encode(),
        json.dumps(WHOLE | {"upper": "3"}).encode(),
        json.dumps(WHOLE | {"incarnation": None}).encode(),
        json.dumps({"version": 1, "upper": 3}).encode(),
    ],
)
def test_what_is_no_record_of_this_version_is_an_error_with_its_offset(value: Any) -> None:
    with pytest.raises(DamagedProgress) as caught:
        step(None, Record(7, value), topic="p")
    assert caught.value.evidence["offset"] == 7


def test_a_record_of_a_newer_version_that_adds_nothing_but_a_name_is_read() -> None:
    assert ProgressRecord.decode(json.dumps(WHOLE | {"more": 1}).encode(), topic="p", offset=0).upper == 0


def test_outputs_and_topics_have_keys_of_their_own() -> None:
    keys = {key_of(replace(OUTPUT, output=name), topic) for name in ("a", "b.c") for topic in ("a", "c", "b.c")}
    assert len(keys) == 6
