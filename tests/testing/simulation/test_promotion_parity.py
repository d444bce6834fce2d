"""A simulated standby that takes its server's place is held beside a real one, with and without the slot.

The standby gets nothing more from an instant on. What the server commits after it is read, and is gone on the other
timeline: where that is bound, both are refused as another upstream, and where it was received alone, as an end that
was taken back. From all earlier places both give the same transactions of the new timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import Server
from tests.sources.postgres.test_failover import moved, replayed
from tests.sources.postgres.test_promotion import cut_off, synchronised
from tests.sources.postgres.test_promotion import standby as standby
from tests.sources.postgres.test_versions import server as server
from tests.testing.simulation.test_postgres_parity import PostgresLife, RealSide, single

from tidegauge.errors.base import Transient
from tidegauge.errors.postgressource import SlotLost
from tidegauge.errors.push import PushedEndTakenBack
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.frontier import Frontier

pytestmark = [pytest.mark.long, pytest.mark.parametrize("server", [17], indirect=True)]

RAISED = (Transient, SlotLost, UpstreamRecreated, PushedEndTakenBack)


class PromotedLife(PostgresLife):
    """One in which the standby takes the place of the server. before: how many transactions it has."""

    def __init__(self, server: Server, standby: Server, root: Path, seed: int) -> None:
        super().__init__(server, root, seed)
        self.standby = standby
        self.before = 0
        self._raised = RAISED

    def part(self) -> None:
        """Give the standbys nothing more: they have all up to here, and the slot as it is."""
        real, log, slot = self.real, self.simulated.log, self.simulated.slot
        synchronised(real.shop, self.standby)
        replayed(real.shop, self.standby)
        cut_off(self.standby)
        log.part({slot: log.slots[slot].confirmed})
        self.before = self.count
        self.kept = {table: dict(rows) for table, rows in self.rows.items()}

    def promote(self, *, slot: bool) -> None:
        """Have the standbys in the places of the servers. slot: whether they have the slot."""
        self.both(lambda side: side.let_go())
        real = self.real
        moved(real.shop, self.standby)
        self.standby.query("SELECT pg_promote()")
        real.user = real.shop.source(metadata=True).placed("shop", "db")
        real.source, real.decode = real.user, real.user.decode
        self.simulated.log.promote()
        if not slot:
            self.both(lambda side: side.drop())
        self.count, self.rows = self.before, self.kept

    def begin_at(self, count: int, bound: int) -> Any:
        """Connect where so many transactions have come, of which so many are bound. Return the error of both."""
        self.both(lambda side: side.let_go())
        starts, bounds = self.reached[count], self.reached[bound]
        return self.both(lambda side: side.connect(starts[self.at(side)], bounds[self.at(side)]))

    def at(self, side: Any) -> int:
        return 0 if isinstance(side, RealSide) else 1


@pytest.fixture
def lives(server: Server, standby: Server, tmp_path: Path) -> Iterator[Any]:
    made: list[PromotedLife] = []

    def make(seed: int) -> PromotedLife:
        made.append(PromotedLife(server, standby, tmp_path, seed))
        return made[-1]

    yield make
    for one in made:
        one.real.end()
        one.simulated.let_go()


@pytest.mark.parametrize("slot", [True, False], ids=["with the slot", "without"])
def test_a_promoted_server_gives_what_a_real_one_does(lives: Any, slot: bool) -> None:
    life = lives(1)
    life.write()
    life.first()
    for _ in range(6):
        life.dice.choice([life.write, life.write, life.follow, life.tell])()
    life.write()
    life.follow()
    life.part()
    lost = [count for count in life.reached if count >= life.told]
    for _ in range(3):
        life.write()
        life.follow()
    gone = max(life.reached)
    assert gone > life.before
    life.promote(slot=slot)
    for _ in range(3):
        life.write()
    wanted = UpstreamRecreated.__name__
    assert life.begin_at(gone, gone) == wanted
    assert life.begin_at(gone, max(lost)) == (PushedEndTakenBack.__name__ if slot else wanted)
    life.reached = {count: life.reached[count] for count in lost}
    if not slot:
        assert life.begin_at(max(lost), max(lost)) == wanted
        return
    for _ in range(3):
        life.follow()
        life.write()
    life.follow()
    for table in life.rows:
        assert single(life.real.rows(table)) == single(life.simulated.rows(table))


def test_a_slot_whose_first_rows_nobody_has_yet_is_made_anew_on_the_promoted_server(lives: Any) -> None:
    life = lives(2)
    life.write()
    life.both(lambda side: side.connect(Frontier()))
    life.both(lambda side: side.take(1)[0] and None)  # nothing is bound
    life.part()
    life.promote(slot=True)
    life.write()
    for side in life.sides:
        side.identity = ""
    life.first()
    for _ in range(2):
        life.write()
        life.follow()
    for table in life.rows:
        assert single(life.real.rows(table)) == single(life.simulated.rows(table))
