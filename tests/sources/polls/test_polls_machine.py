"""Drivers, zombies and crashes at random: each row once, in order, and nothing fetched that is staged."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.depth import deep
from tests.sources.polls.polling import NOW, Driver, polling, rows_of

import tidegauge as tg
from tidegauge.env import Env, at_once
from tidegauge.errors.base import Transient
from tidegauge.operations import BEFORE, DELETE, INSERT, OP, UPDATE
from tidegauge.remap.binding import Bound
from tidegauge.sources.polls import log


class Died(BaseException):
    """The driver died here."""


def view(rows: list[dict[str, Any]]) -> dict[int, int]:
    """What operations leave; each of them goes with the rows that are there."""
    found: dict[int, int] = {}
    for row in rows:
        n, v = row["n"], row["v"]
        assert (row[OP] == INSERT) == (n not in found) or row[OP] == UPDATE
        if row[OP] in (BEFORE, DELETE):
            assert found.pop(n) == v
        else:
            found[n] = v
    return found


class Lives(RuleBasedStateMachine):
    """A table of rows by key upstream, drivers that poll it, of which one has the lease, and a store of bindings."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tidegauge-polls-"))
        self.bound = Bound()
        self.drivers: list[Driver] = []
        self.upstream: list[tuple[int, int]] = []
        self.fetched_from: list[int] = []
        self.strike = ""
        self.wrong = False
        self.racing: int | None = None

    @initialize(merge=st.sampled_from(["append", "ledger", "snapshot"]))
    def begin(self, merge: Any) -> None:
        self.merge = merge
        key = () if merge == "append" else "n"
        self.source = polling(self.root, self.fetch, columns="n long, v long", merge=merge, key=key)
        self.start()

    def fetch(self, state: int | None) -> tg.Fetched:
        """Answer, and let another driver poll before the answer is staged, where there is to be a race."""
        found = self.answer(state)
        if self.racing is not None:
            n, self.racing = self.racing, None
            self.grow(n, 1, 1)
            self.looked(self.made())
        return found

    def answer(self, state: int | None) -> tg.Fetched:
        if self.wrong:
            raise OSError("upstream is away")
        if self.merge == "snapshot":
            now = dict(self.upstream)
            return tg.Fetched([{"n": n, "v": v} for n, v in now.items()])
        rows = [{"n": n, "v": v} for n, v in self.upstream]
        if self.merge == "ledger":
            return tg.Fetched(rows)
        at = state or 0
        self.fetched_from.append(at)
        page = rows[at : at + 2]
        return tg.Fetched(page, at + len(page) or None, more=at + len(page) < len(rows))

    def point(self, name: str) -> None:
        if name == self.strike:
            self.strike = ""
            raise Died

    @rule()
    def start(self) -> None:
        """A new driver has the lease; the one before may live on as a zombie."""
        self.drivers = [*self.drivers[-1:], self.made()]

    def made(self) -> Driver:
        made = Driver(self.source, bound=self.bound)
        made.poller = made.source.attended(Env(monotonic=made.clock.monotonic, point=self.point), beside=at_once)
        return made

    @rule(n=st.integers(0, 6), v=st.integers(0, 2), count=st.integers(1, 3))
    def grow(self, n: int, v: int, count: int) -> None:
        if self.merge == "snapshot":
            self.upstream = [(key, value) for key, value in self.upstream if key != n]
        fresh = len(self.upstream)
        self.upstream += [(fresh + i if self.merge == "append" else n + i, v) for i in range(count)]

    @precondition(lambda self: self.upstream and getattr(self, "merge", "") == "snapshot")
    @rule(at=st.integers(0, 20))
    def remove(self, at: int) -> None:
        del self.upstream[at % len(self.upstream)]

    @rule(wrong=st.booleans())
    def reach(self, wrong: bool) -> None:
        self.wrong = wrong

    def looked(self, driver: Driver) -> Any:
        """Look with a driver, which may die of it."""
        driver.clock.now += 400
        try:
            return driver.poller.probe(driver.bound, now=NOW)
        except Died:
            self.drivers = [one for one in self.drivers if one is not driver]
            return None
        except Transient:
            return None

    @precondition(lambda self: self.drivers)
    @rule(bind=st.booleans())
    def look(self, bind: bool) -> None:
        driver = self.drivers[-1]
        driver.bound = self.bound
        if (seen := self.looked(driver)) is not None and bind:
            driver.bind(seen)
            self.bound = driver.bound

    @precondition(lambda self: len(self.drivers) > 1)
    @rule()
    def zombie_looks(self) -> None:
        """It stages, with bindings that are of before, and binds nothing: its lease is another's."""
        self.looked(self.drivers[0])

    @precondition(lambda self: self.drivers)
    @rule(n=st.integers(0, 6))
    def race(self, n: int) -> None:
        self.racing = n
        self.look(bind=True)
        self.racing = None

    @precondition(lambda self: self.drivers)
    @rule(point=st.sampled_from(["before stage poll", "after stage poll"]))
    def die(self, point: str) -> None:
        driver = self.drivers[-1]
        driver.bound, self.strike = self.bound, point
        self.looked(driver)
        self.strike = ""

    @precondition(lambda self: self.drivers)
    @rule()
    def full(self) -> None:
        """The disk is full as the poll is to be staged."""

        def refuse(*_args: Any, **_more: Any) -> bool:
            raise OSError(28, "No space left on device")

        driver = self.drivers[-1]
        driver.bound = self.bound
        with patch.object(log, "create", refuse), suppress(OSError):
            self.looked(driver)

    @invariant()
    def bound_rows_are_those_of_upstream_each_once(self) -> None:
        if not self.bound.frontier:
            return
        rows = rows_of(self.source, self.bound)
        if self.merge == "append":
            assert [row["n"] for row in rows] == list(range(len(rows)))
        elif self.merge == "ledger":
            keys = [row["n"] for row in rows]
            assert len(keys) == len(set(keys))
        else:
            view(rows)

    def teardown(self) -> None:
        """In the end a driver that is left in peace has all of it."""
        if self.drivers or hasattr(self, "source"):
            self.wrong, self.racing = False, None
            self.start()
            driver = self.drivers[-1]
            for _ in range(50):
                driver.clock.now += 400
                driver.bind(driver.look())
            self.bound = driver.bound
            self.bound_rows_are_those_of_upstream_each_once()
            rows = rows_of(self.source, self.bound) if self.bound.frontier else []
            if self.merge == "append":
                assert len(rows) == len(self.upstream)
            elif self.merge == "ledger":
                assert {row["n"] for row in rows} == {n for n, _ in self.upstream}
            else:
                assert view(rows) == dict(self.upstream)
        shutil.rmtree(self.root)


TestLives = Lives.TestCase
TestLives.settings = deep(80, stateful_step_count=25)
