"""A round waits for each source that it asked, once, and costs no more than their number."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.remap.round import Round

names = st.sampled_from("abcdef")


@given(st.sets(names), st.lists(names))
def test_a_round_is_over_when_all_that_were_asked_have_answered_or_at_its_deadline(
    asked: set[str], answers: list[str]
) -> None:
    tick = Round(1, 10.0, set(asked))
    for source in answers:
        tick.answered(source)
    assert tick.over(now=9.9) == (asked <= set(answers))
    assert tick.over(now=10.0)


def test_very_many_answers_cost_no_more_than_their_number() -> None:
    sources = [f"source {n}" for n in range(20_000)]
    tick = Round(1, 10.0, set(sources))
    began = time.process_time()
    for source in sources:
        tick.answered(source)
    assert tick.over(now=0.0)
    assert time.process_time() - began < 2
