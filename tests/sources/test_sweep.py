"""The decisions of the sweep: what is news, and how many threads it takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.mint import mint
from tidegauge.sources.sweep import LAPSE, SLOW, meeting, more, news

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def state(value: str) -> SourceState:
    return SourceState(kind="poll", source_id="s", value=value)


frontiers = st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)).map(Frontier)
states = st.sampled_from([None, state("1"), state("2")])


def probes() -> st.SearchStrategy[Observation]:
    return st.builds(
        Observation,
        at=st.just(NOW),
        upper=st.builds(lambda frontier, sealed: frontier.seal() if sealed else frontier, frontiers, st.booleans()),
        end=frontiers,
        more=st.booleans(),
        identity=st.sampled_from(["", "x"]),
        state=states,
        taken_back=st.sampled_from([{}, {"a": (1, 2)}]),
    )


@st.composite
def looks(draw: st.DrawFn) -> tuple[Observation, Observation]:
    """Two answers of a source, one after the other, of which much is the same."""
    last, now = draw(probes()), draw(probes())
    same = draw(st.sets(st.sampled_from(["upper", "end", "more", "identity", "state", "taken_back"])))
    return replace(now, **{name: getattr(last, name) for name in same}), last


@given(looks(), st.booleans(), states)
def test_what_is_no_news_binds_nothing_and_leaves_the_reader_where_it_is(
    found: tuple[Observation, Observation], caught_up: bool, state: SourceState | None
) -> None:
    probe, last = found
    bound = Bound(frontier=Frontier(last.upper) if caught_up else Frontier(), state=state)
    assert news(probe, None, bound)
    if news(probe, last, bound):
        return
    assert probe.upper == last.upper
    known = {} if bound.state is None else {"s": bound.state}
    assert mint({"s": bound.frontier}, {"s": probe}, states=known) == {}


def test_a_later_look_at_what_is_as_it_was_is_no_news() -> None:
    last = Observation(at=NOW, upper=Frontier({"a": 1}), end=Frontier({"a": 2}))
    later = replace(last, at=NOW.replace(hour=1), end=Frontier({"a": 3}), note="an unfinished line")
    assert not news(later, last, Bound(frontier=last.upper))


@given(sources=st.integers(1, 3000), hung=st.integers(0, 3000))
def test_nobody_waits_behind_slow_ones_for_long_however_many_they_are(sources: int, hung: int) -> None:
    hung = min(hung, sources)  # the first in the line, none of which ever answers
    threads, looks = 1, 0
    while (stuck := min(threads, hung)) == threads and threads < sources:
        added = more(waiting=sources - threads, threads=threads, stuck=stuck, done=0, seconds=LAPSE)
        assert 0 < added <= sources - threads
        threads, looks = threads + added, looks + 1
    assert looks <= hung.bit_length()


@given(waiting=st.integers(1, 3000), threads=st.integers(1, 50), stuck=st.integers(0, 49))
def test_those_who_are_quick_are_left_alone(waiting: int, threads: int, stuck: int) -> None:
    free = max(1, threads - stuck)
    done = round(LAPSE * free / SLOW) + 1
    assert more(waiting=waiting, threads=threads, stuck=threads - free, done=done, seconds=LAPSE) == 0


places = st.lists(st.sampled_from("ab"), max_size=4).map(tuple)


@given(st.dictionaries(st.integers(0, 9), places).map(lambda found: {f"s{n}": place for n, place in found.items()}))
def test_sources_meet_where_the_place_of_one_begins_with_that_of_another(found: dict[str, tuple[str, ...]]) -> None:
    def met(name: str) -> bool:
        mine = found[name]
        others = [place for other, place in found.items() if other != name]
        return any(mine[: len(place)] == place or place[: len(mine)] == mine for place in others)

    assert meeting(found) == {name for name in found if met(name)}
