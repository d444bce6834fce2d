"""A chaos: one flow, real processes, a real store, a real broker; and signals at random instants, from a seed.

Writers write and drivers drive while the plan strikes them, the broker and the store. All the time the laws of the
simulated worlds are looked at from outside (`Checks`). When the plan is over nothing goes wrong any more: then
everything has to arrive within `PATIENCE`, and nothing may be left behind.

Invariant: whatever a chaos comes to, no process of it outlives it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.chaos.drivers import Drivers
from tests.chaos.flow import Place
from tests.chaos.plan import Strike, planned
from tests.chaos.threads import Beside, Repeated
from tests.chaos.witness import Witness
from tests.chaos.writers import PARTITIONS, FileWriter, TopicWriter
from tests.kafka import unique
from tests.postgres import Server
from tests.warm import Warm

from tidegauge.testing import KafkaBroker
from tidegauge.testing.simulation.ledger import Broken

__all__ = ["Chaos", "ChaosFailed", "Survived"]

PATIENCE = 120.0
"""Seconds after the last strike within which everything is in every table: some leases, some restarts."""
LOOK_EVERY = 0.4
STEP = 0.02
SILENCE = 3
"""Seconds after which PostgreSQL ends the transaction of a driver that stands still: less than a lease."""


class ChaosFailed(AssertionError):
    """A law that did not hold, what was done when, and how to run it again."""


@dataclass(frozen=True)
class Survived:
    """What a chaos came to.

    packed: how often files were packed. looks: how often the laws were looked at. ends: how drivers ended.
    """

    drivers: int
    epochs: int
    rows: int
    packed: int
    looks: int
    strikes: Counter[str]
    ends: Counter[str]

    def __str__(self) -> str:
        strikes, ends = (
            ", ".join(f"{count} x {what}" for what, count in sorted(counted.items())) or "none"
            for counted in (self.strikes, self.ends)
        )
        return (
            f"{self.drivers} drivers, {self.epochs} epochs, {self.rows} rows, {self.packed} packings, "
            f"{self.looks} looks: every law held "
            f"(strikes: {strikes}; ends: {ends})"
        )


class Chaos:
    """One chaos in a folder. `run` it once. server: where the store is, None for a SQLite file."""

    def __init__(
        self, root: Path, *, seed: int, seconds: float, broker: KafkaBroker, server: Server | None, warm: Warm
    ) -> None:
        self.root, self.seed, self.seconds = root, seed, seconds
        self._broker, self._server = broker, server
        self._began = time.monotonic()
        self._told = (root / "chronicle.txt").open("w", buffering=1)
        store = f"sqlite:///{root}/flow.db" if server is None else server.place(silence=SILENCE)
        topic = broker.create_topic(unique("chaos"), partitions=PARTITIONS)
        self._place = Place(str(root), store, broker.servers, topic)
        self._drivers = Drivers(warm, self._place.file(), self.say)
        self._witness = Witness(self._place, broker.endpoint, Random(f"looks {seed}"), self.say)
        self._outages: dict[str, Beside] = {}
        self._struck: Counter[str] = Counter()
        self._looking: Repeated | None = None

    def say(self, what: str) -> None:
        """Note what happens, with its instant."""
        self._told.write(f"{self.now():9.3f}  {what}\n")

    def now(self) -> float:
        """Return the seconds since it began."""
        return time.monotonic() - self._began

    def run(self) -> Survived:
        """Carry out the plan. Raises `ChaosFailed`."""
        self._began = time.monotonic()
        topic = TopicWriter(self._place.servers, self._place.topic, Random(f"topic {self.seed}"))
        files = FileWriter(self._place.folder, Random(f"files {self.seed}"))
        looking = self._looking = Repeated("witness", self._witness.look, every=LOOK_EVERY)
        try:
            self._strike_all(files)
            self._heal()
            looking.finish()
            topic.finish()
            files.finish()
            self._until("everything arrives once nothing goes wrong any more", self._witness.caught_up)
            self._end()
            self._witness.compare(topic)
        except Exception as error:
            raise self._failed(
                str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            ) from error
        finally:
            for going_on in (looking, topic, files):
                going_on.leave()
            for outage in self._outages.values():
                outage.join()
            self._drivers.kill()
            self._witness.close()
            self._told.close()
        witness, drivers = self._witness, self._drivers
        return Survived(
            drivers.started, witness.epochs, witness.rows, witness.packed, witness.looks, self._struck, drivers.ends
        )

    def _failed(self, what: str) -> ChaosFailed:
        kind = "postgresql" if self._server else "sqlite"
        again = f"python -m tests.chaos --seed {self.seed} --seconds {self.seconds:g} --store {kind}"
        done = Path(self._told.name).read_text()
        said = f"seed {self.seed}: {what}\n\nwhat was done, by seconds:\n{done}"
        return ChaosFailed(f"{said}\nlogs and tables: {self.root}\nonce more: {again}")

    # What is done to it.

    def _strike_all(self, files: FileWriter) -> None:
        for strike in planned(self.seed, seconds=self.seconds, server=self._server is not None):
            self._live(lambda at=strike.at: self.now() >= at)  # type: ignore[misc]
            self._strike(strike, files)
        self._live(lambda: self.now() >= self.seconds)

    def _live(self, until: Callable[[], bool]) -> None:
        """Supervise until something is so. Raises `Broken`."""
        while not until():
            if self._looking is not None:
                self._looking.check()
            self._supervise()
            threading.Event().wait(STEP)

    def _supervise(self) -> None:
        """See to it that a driver runs. One that stands still gets a successor."""
        self._drivers.look(self.now())
        if all(driver.thaws is not None or driver.stopping for driver in self._drivers.living):
            self._drivers.start()

    def _strike(self, strike: Strike, files: FileWriter) -> None:
        standing = [driver for driver in self._drivers.living if driver.thaws is None]
        chosen = standing[int(strike.draw * len(standing))] if standing else None
        if chosen is not None and strike.what == "freeze":
            chosen = standing[0]  # the oldest one: it is likely to have the lease
        match strike.what:
            case "rival":
                self._drivers.start()
            case "another file":
                files.begin_another()
            case "kill the broker" | "freeze the broker":
                if not self._break("the broker", strike, *self._broken_broker(strike)):
                    return
            case "kill the store":
                assert self._server is not None
                if not self._break("the store", strike, self._server.kill, self._server.start):
                    return
            case _ if chosen is None:
                return
            case "kill":
                self.say(f"SIGKILL to {chosen}")
                chosen.kill()
            case "freeze":
                self.say(f"SIGSTOP to {chosen} for {strike.seconds:g} s")
                chosen.freeze(self.now() + strike.seconds)
            case "stop":
                self.say(f"SIGTERM to {chosen}")
                chosen.stop()
        self._struck[strike.what] += 1

    def _broken_broker(self, strike: Strike) -> tuple[Callable[[], None], Callable[[], None]]:
        if strike.what == "kill the broker":
            return self._broker.kill, self._broker.start
        return self._broker.pause, self._broker.resume

    def _break(self, whom: str, strike: Strike, away: Callable[[], None], back: Callable[[], None]) -> bool:
        """Let a server be away for a while, unless it is already; return whether it is by this."""
        if whom in self._outages and not self._outages[whom].over:
            return False
        self.say(str(strike))

        def work() -> None:
            away()
            threading.Event().wait(strike.seconds)
            back()
            self.say(f"{whom} is back")

        self._outages[whom] = Beside(whom, work)
        return True

    def _heal(self) -> None:
        self.say("from here on nothing goes wrong")
        self._until("servers come back", lambda: all(outage.over for outage in self._outages.values()))
        for driver in self._drivers.living:
            if driver.thaws is not None:
                self.say(f"SIGCONT to {driver}")
                driver.thaw()

    def _until(self, law: str, so: Callable[[], bool]) -> None:
        """Go on until something is so. Raises `Broken` where it takes too long."""
        deadline = self.now() + PATIENCE

        def reached() -> bool:
            if self.now() < deadline:
                return so()
            raise Broken(law, self._witness.state())

        self._live(reached)

    def _end(self) -> None:
        """Stop all drivers, look at everything, and let one more clear up what the killed ones have left."""
        self._drivers.stop(self.now)
        self._witness.at_the_end()
        self._drivers.start("--until", "caught-up").stopping = True
        self._drivers.await_all(self.now)
        self._witness.at_the_end()
        self._witness.cleared()
