"""A source that two flows share: the tables of the follower are those that the owner would have."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.depth import examples
from tests.flow.by_hand import Crash, Run, World
from tests.flow.shared import Pair, numbers

import tidegauge as tg
from tidegauge.errors.following import OwnerLacksSource, OwnerNotThere

MOVES = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("xy"), st.integers(1, 9)),
    st.tuples(st.just("step"), st.sampled_from("ab"), st.integers(1, 4)),
    st.tuples(st.just("crash"), st.sampled_from("ab"), st.integers(0, 25)),
    st.tuples(st.just("stop"), st.sampled_from("ab"), st.just(0)),
    st.tuples(st.just("compact"), st.sampled_from("ab"), st.integers(0, 30)),
)


class Lives:
    """The two drivers, each with its lives one after the other."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.worlds: dict[str, World] = {"a": pair.a, "b": pair.b}
        self.runs: dict[str, Run] = {}

    def step(self, who: str, seconds: int) -> None:
        """Let a driver go on; it may die on the way, and is started when there is none."""
        try:
            if who not in self.runs:
                self.runs[who] = self.worlds[who].start()
            self.runs[who].step(seconds * 0.5)
        except (OwnerNotThere, OwnerLacksSource):
            assert who == "b"
            assert "a" not in self.runs  # nobody has begun to be followed
        except Crash:
            if run := self.runs.pop(who, None):
                run.abandon()

    def crash(self, who: str, at: int) -> None:
        self.worlds[who].crash_at = at
        self.step(who, 2)
        self.worlds[who].crash_at = None

    def stop(self, who: str) -> None:
        if run := self.runs.pop(who, None):
            run.abandon()

    def compact(self, who: str, epoch: int) -> None:
        self.stop(who)
        flow = self.pair.flows()["ab".index(who)]
        with suppress(tg.TidegaugeError):  # it never ran
            tg.compact(flow, before=epoch, env=self.worlds[who].env())


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MOVES, max_size=25))
@example([("add", "x", 9), ("add", "x", 9), ("step", "a", 1), ("compact", "a", 8)])  # then somebody follows
def test_a_follower_has_the_tables_that_its_owner_has(moves: list[tuple[str, str, int]]) -> None:
    with TemporaryDirectory() as folder:
        pair = Pair(Path(folder))
        lives = Lives(pair)
        for what, who, much in moves:
            if what == "add":
                pair.add(who, much)
            elif what == "step":
                lives.step(who, much)
            elif what == "crash":
                lives.crash(who, much)
            elif what == "stop":
                lives.stop(who)
            else:
                lives.compact(who, much)
        for who in "ab":
            lives.stop(who)
        pair.add("x", 3)
        pair.add("y", 3)
        shop, billing = pair.settle()
        pair.agree()
        assert numbers(billing, "x", "y") == list(range(pair.written))
        owner, follower = pair.a.loaded().flow, pair.b.loaded().flow
        assert (owner.upper, owner.published) == (follower.upper, follower.published)
        for flow in (shop, billing):
            assert tg.verify(flow).problems == ()
