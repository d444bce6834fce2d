"""A simulated feed is held beside a server of logs on a socket: the same life of both, connection by connection.

Both forget what is acknowledged. Whatever happens to the log, a connection from the same frontier gives the same
records and ends at the same frontier on both sides, or is refused with the same numbers.

Not drawn here: transactions, which the server does not have, and the end of a log, which a feed does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from tests.depth import examples
from tests.waiting import eventually

from tidegauge.errors.base import Transient
from tidegauge.errors.push import StartForgotten
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources import SocketSource
from tidegauge.testing import LogServer
from tidegauge.testing.kit.connection import Taken, connected, follow, follow_on
from tidegauge.testing.kit.push_bench import PushedRecord
from tidegauge.testing.simulation.upstream import FeedLog, SimulatedFeed

PLACES: Final = ("feed-0", "feed-1")
COLUMNS: Final = "n long"
STREAMS: Final = ("a", "b")
STEPS: Final = 14


class Side:
    """A source, as a bench has it. held: the connection that is kept over several steps, and what it has given."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.held: tuple[Any, Taken] | None = None

    def add(self, count: int) -> Sequence[PushedRecord]:
        raise NotImplementedError(count)


class FeedLife:
    """One life of both sides."""

    def __init__(self, server: LogServer, draw: Callable[[Any], Any]) -> None:
        self.server, self.feed, self.draw = server, FeedLog(partitions=len(PLACES)), draw
        real = SocketSource(server.host, server.port, columns=dict.fromkeys(STREAMS, COLUMNS))
        self.sides = (Side(real), Side(SimulatedFeed(self.feed, streams=real.streams)))
        self.reached: list[Frontier] = [Frontier()]
        self.number = 0

    def append(self) -> None:
        place, stream = self.draw(st.sampled_from(PLACES)), self.draw(st.sampled_from(STREAMS))
        numbers = range(self.number, self.number + self.draw(st.integers(1, 4)))
        self.number = numbers.stop
        for n in numbers:
            self.server.append({"n": n}, stream=stream, partition=place)
        self.feed.append(place, pa.record_batch({"n": pa.array(numbers, pa.int64())}), stream=stream)

    def both(self, ask: Callable[[Side], Any]) -> list[Any]:
        """Ask both sides, which say the same, or fail alike. Return what they said, [] where they failed."""
        found: list[Any] = []
        for side in self.sides:
            try:
                found.append(ask(side))
            except StartForgotten as error:
                told = error.evidence  # of one partition, where there may be others
                assert told["start"] < told["oldest"] == self.feed.log.start(told["partition"])
                found.append("it is forgotten")
            except (OSError, Transient):
                found.append("it passes")
        assert found[0] == found[1]
        event(found[0] if isinstance(found[0], str) else "a connection")
        return [] if isinstance(found[0], str) else found

    def follow(self) -> None:
        """Take all that there is, from a frontier that an earlier connection came to."""
        start, limit = self.draw(st.sampled_from(self.reached)), self.draw(st.sampled_from([1, 3, 100]))
        goal = self.server.end

        def taken(side: Side) -> Any:
            found = follow(side, goal, start, limit=limit)
            return by_place(found.records), found.reached, found.end

        if goal.follows(start) and (found := self.both(taken)):
            self.reached.append(found[0][1])

    def hold(self) -> None:
        """Connect, and keep the connection."""
        self.let_go()
        start = self.draw(st.sampled_from(self.reached))
        if self.server.end.follows(start):
            self.both(lambda side: self.kept(side, start))

    def kept(self, side: Side, start: Frontier) -> bool:
        side.held = side.source.connect(start, Bound()), Taken(reached=start)
        return True

    def go_on(self) -> None:
        """Take what has come on the connection that is kept, and say that it is durable, or do not."""
        goal, tells = self.server.end, self.draw(st.booleans())
        if self.sides[0].held is None or self.sides[1].held is None:
            return

        def more(side: Side) -> Any:
            assert side.held is not None
            subscription, taken = side.held
            follow_on(side, subscription, goal, taken)
            if tells and taken.stops:  # a server is told nothing before it has said how far it goes
                subscription.acknowledge(taken.reached)
            return by_place(taken.records), taken.reached

        if found := self.both(more):
            self.reached.append(found[0][1])
            if tells:
                eventually(lambda: self.server.acknowledged == self.feed.acknowledged)
        else:
            self.let_go()

    def let_go(self) -> None:
        for side in self.sides:
            if side.held is not None:
                side.held[0].close()
            side.held = None

    def lose(self) -> None:
        place = self.draw(st.sampled_from(PLACES))
        to = self.draw(st.integers(0, self.server.end[place]))
        self.server.forget(place, to)
        self.let_go()  # what a connection gives that is behind what is lost differs from server to server
        self.feed.lose(place, to)

    def break_off(self) -> None:
        self.server.cut()
        self.feed.cut()
        self.let_go()

    def live(self) -> None:
        steps = [
            *[self.append] * 6,
            *[self.follow] * 4,
            *[self.hold] * 2,
            *[self.go_on] * 5,
            self.lose,
            self.break_off,
        ]
        self.draw(st.sampled_from(steps))()


def by_place(records: Sequence[PushedRecord]) -> list[PushedRecord]:
    return sorted(records, key=lambda record: (record.partition, record.position))


@settings(max_examples=examples(60), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_a_simulated_feed_says_what_a_server_says(data: st.DataObject) -> None:
    with LogServer(forgets=True) as server:
        life = FeedLife(server, data.draw)
        try:
            for _ in range(STEPS):
                life.live()
            life.follow()
        finally:
            life.let_go()


def test_what_is_cut_off_is_lost_with_what_it_had_to_say() -> None:
    feed = FeedLog()
    source = SimulatedFeed(feed, streams={"": pa.schema([("n", pa.int64())])})
    feed.append("feed-0", pa.record_batch({"n": [1, 2, 3]}))
    feed.slow = True
    with connected(Side(source)) as line:
        line.receive(9, 0.0)
        line.acknowledge(Frontier({"feed-0": 2}))
        line.acknowledge(Frontier({"feed-0": 3}))
        assert feed.acknowledged == Frontier()
        feed.cut()
    feed.deliver()
    assert feed.acknowledged == Frontier()
    with connected(Side(source)) as line:
        line.acknowledge(Frontier({"feed-0": 2}))
    assert feed.acknowledged == Frontier({"feed-0": 2}), "at once"
