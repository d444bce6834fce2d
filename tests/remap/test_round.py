"""A round waits for each source that it asked, once, and costs no more than their number."""

from __future__ import annotations

import time
from concurrent.futures import Future

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.remap.round import Requests, Round

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


@given(st.lists(st.sampled_from(["ask", "begin", "answer"])))
def test_a_request_is_answered_by_the_first_tick_that_begins_after_it(story: list[str]) -> None:
    """One that was under way may have asked some source before what was upstream by then."""
    requests = Requests("shop")
    requests.open(wake=lambda: None)
    ticks, waiting, due = 0, list[Future[int | None]](), list[tuple[Future[int | None], int]]()
    under_way = False
    for event in story:
        match event:
            case "ask":
                waiting.append(requests.ask())
            case "begin" if not under_way:
                under_way, ticks = True, ticks + 1
                assert requests.begin() == bool(waiting)
                due, waiting = [*due, *((asked, ticks) for asked in waiting)], []
            case "answer" if under_way:
                under_way = False
                requests.answer(ticks)
        assert not any(asked.done() for asked in waiting)
        assert all(asked.done() == (tick < ticks or not under_way) for asked, tick in due)
    assert all(asked.result() == tick for asked, tick in due if asked.done())


def test_very_many_answers_cost_no_more_than_their_number() -> None:
    sources = [f"source {n}" for n in range(20_000)]
    tick = Round(1, 10.0, set(sources))
    began = time.thread_time()
    for source in sources:
        tick.answered(source)
    assert tick.over(now=0.0)
    assert time.thread_time() - began < 2
