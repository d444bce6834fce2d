"""The plan of a chaos: who is struck at which instant, drawn from a seed before it begins.

Invariant: a plan is a value of its seed, its length and the kind of store alone. What the processes are about when
they are struck is up to the machine.

>>> plan = planned(7, seconds=20, server=False)
>>> plan == planned(7, seconds=20, server=False), all(strike.at < 20 for strike in plan)
(True, True)
>>> any(strike.what == "kill the store" for seed in range(20) for strike in planned(seed, seconds=20, server=False))
False
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from tests.chaos.flow import LEASE

__all__ = ["Strike", "What", "planned"]

What = Literal[
    "kill", "freeze", "rival", "stop", "kill the broker", "freeze the broker", "kill the store", "another file"
]
"""What is done.

    kill               SIGKILL to a driver
    freeze             SIGSTOP to a driver, and SIGCONT after so many seconds: a lease has run out by then, or not
    rival              one more driver is started
    stop               SIGTERM to a driver
    kill the broker    SIGKILL; it is started again after so many seconds
    freeze the broker  SIGSTOP, and SIGCONT after so many seconds
    kill the store     SIGKILL to all of PostgreSQL; it is started again after so many seconds
    another file       writers begin one
"""

OFTEN: dict[What, float] = {"kill": 3.0, "freeze": 5.0, "rival": 6.0, "stop": 12.0, "another file": 8.0}
"""Seconds between two of a kind, about."""
SELDOM: dict[What, float] = {"kill the broker": 25.0, "freeze the broker": 15.0, "kill the store": 12.0}
"""The same for what only one can suffer at a time, and takes a while to come back."""


AT_DRIVERS = ("kill", "freeze", "stop")


@dataclass(frozen=True, order=True)
class Strike:
    """Something that is done `at` so many seconds. seconds: how long it lasts. draw: by which to choose whom."""

    at: float
    what: What
    seconds: float = 0.0
    draw: float = 0.0

    def __str__(self) -> str:
        return self.what + (f" for {self.seconds:g} s" if self.seconds else "")


def planned(seed: int, *, seconds: float, server: bool) -> list[Strike]:
    """Return a plan in the order of time. server: whether the store is one."""
    random = Random(f"chaos {seed}")
    rates = {**OFTEN, **SELDOM}
    if not server:
        del rates["kill the store"]
    some = [what for what in rates if random.random() < 0.75] or ["kill"]
    spared = random.random() < 0.6
    found: list[Strike] = []
    for what in some:
        pace = rates[what] * random.choice((0.6, 1.0, 2.0))
        at = random.expovariate(1 / pace)
        while at < seconds:
            strike = Strike(round(at, 3), what, _lasts(random, what), random.random())
            found.append(strike)
            at += strike.seconds * (what in SELDOM) + random.expovariate(1 / pace)
    return _spared(sorted(found)) if spared else sorted(found)


def _spared(strikes: list[Strike]) -> list[Strike]:
    """Return the strikes without those at drivers while one sleeps past its lease: its successor gets to work."""
    found: list[Strike] = []
    wakes = 0.0
    for strike in strikes:
        if strike.what in AT_DRIVERS and strike.at < wakes:
            continue
        if strike.what == "freeze" and strike.seconds > LEASE:
            wakes = strike.at + strike.seconds
        found.append(strike)
    return found


def _lasts(random: Random, what: What) -> float:
    match what:
        case "freeze":
            return round(random.choice((0.2, LEASE / 2, LEASE + 2, 1.5 * LEASE, 2 * LEASE)), 3)
        case "freeze the broker":
            return round(random.uniform(0.5, 8.0), 3)
        case "kill the broker" | "kill the store":
            return round(random.uniform(0.1, 3.0), 3)
        case _:
            return 0.0
