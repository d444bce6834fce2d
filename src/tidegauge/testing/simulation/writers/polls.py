"""The writers of a service that is polled, and what its flow has to make of its answers.

A check knows from each staged poll which state it has brought: its rows follow from the states so far. They are made
here once more, from the service's own rows, by plain rules:

    append      the rows of the answer
    upsert      the same, each an update
    ledger      those whose key was in no answer of a staged poll before
    snapshot    the difference from the answer of the staged poll before

Invariant: no driver asks for rows that it must know to be staged: by others before it began, or by itself.

>>> import tidegauge as tg
>>> from tidegauge.testing.simulation.upstream.polled import polls_of
>>> user = tg.PollingSource(None, columns="id long, n long", staging="/nowhere", merge="upsert", key="id")
>>> upstream = PollsUpstream("orders", *polls_of(user.placed("shop", "orders")), seed=1)
>>> upstream.act(Act(0.5, "append", "orders", 3))
>>> upstream.there(), upstream.end("polls")
({'polls': 1}, 0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.operations import BEFORE, DELETE, INSERT, OP, UPDATE
from tidegauge.remap.fromtime.polled import POLLS, SourceState
from tidegauge.sources.generated import rows as generated
from tidegauge.sources.polls.merging import Merging
from tidegauge.sources.polls.source import Fetched, PollingSource
from tidegauge.sources.polls.states import decoded
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.counterpart import MetSource
from tidegauge.testing.simulation.upstream.polled import PolledService
from tidegauge.testing.simulation.writers.lasting import LastingPlaces
from tidegauge.testing.simulation.writers.staging import PollsSeen, hearing_of_polls
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["PollsUpstream"]

_EVERY: Final = 1.0
"""Seconds between two polls, at most: a user's minute would leave a world with little to do."""
_KNOWN: Final = 0.3
"""How often a row has a key that came before."""
_GONE: Final = 0.25
"""How often a row of a snapshot goes."""

_Told = tuple[int, str]
"""A row, by its number, and its operation; "" without one."""


class PollsUpstream(LastingPlaces):
    """A service that writers write to, and a flow polls in place of that of its user. broken: a law that was."""

    def __init__(self, name: str, source: PollingSource, service: PolledService, *, seed: int) -> None:
        self.overtaken = False
        self.name: Final = name
        self.schema: Final = source.schema
        self.broken: Broken | None = None
        self.service: Final = service
        check_columns(name, service.merging.columns)
        self._staged: Final = PollsSeen(source.owner)
        every = min(source.every, _EVERY)
        self._source: Final = replace(source, function=None, staging=self._staged.path, every=every)
        self._seed: Final = seed
        self._made = 0
        self._polls: Final[list[tuple[int, list[_Told]]]] = []
        """Of each staged poll: the state after it, and the rows that it has to have."""
        self._keys: Final[set[tuple[Any, ...]]] = set()

    @property
    def _merging(self) -> Merging:
        return self.service.merging

    def source(self, meet: Callable[[str], None]) -> MetSource:
        """Return the source, as one driver has it."""
        asking = _ServiceAsker(self, meet)
        return MetSource(replace(self._source, function=asking), meet, within=asking.within)

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Let nobody answer, or somebody again."""
        self.service.away = away

    # What writers do.

    def act(self, act: Act) -> None:
        """Do what a writer does. number: how many rows."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        for _ in range(act.number if act.what in ("append", "transact", "grow") else 0):
            if self._merging.how == "snapshot" and random.random() < _GONE:
                self.service.remove(random.randrange(1000))
            else:
                self.service.add(self._row(random))

    def _row(self, random: Random) -> Mapping[str, Any]:
        lower, upper = self._made, self._made + 1
        self._made = upper
        columns, key = self._merging.columns, self._merging.key
        [row] = made(columns, seed=self._seed, shard=0, lower=lower, upper=upper).to_pylist()
        [whole] = generated(columns, seed=self._seed, shard=0, lower=lower, upper=upper).to_pylist()
        row.update({name: whole[name] for name in key})  # no key has nulls
        if key and self.service.rows and random.random() < _KNOWN:
            before = random.choice(self.service.rows)
            row.update({name: before[name] for name in key})
        found: Mapping[str, Any] = row
        return found

    # What a check may ask.

    def there(self) -> dict[str, int]:
        """Return how many polls have to arrive: those that are staged, and one if there is more to be told."""
        staged = self.end(POLLS)
        coming = staged + bool(self._rows_of(self._state(staged), self.service.end))
        return {POLLS: coming} if coming else {}

    def end(self, place: str) -> int:  # noqa: ARG002
        """Return how many polls are staged."""
        for manifest in self._staged.further():
            state = int(decoded(SourceState.decode(manifest.state).value) or 0)
            before = self._state(len(self._polls))
            self._polls.append((state, self._rows_of(before, state)))
            if self._merging.how == "ledger":
                self._keys.update(map(self.service.key, self.service.payload(before, state)))
        return len(self._polls)

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of some polls."""
        self.end(place)
        told = [one for _state, rows in self._polls[lower:upper] for one in rows]
        rows = [self.service.rows[number] | ({OP: operation} if operation else {}) for number, operation in told]
        return [pa.RecordBatch.from_pylist(rows, schema=self.schema)] if rows else []

    def _state(self, polls: int) -> int:
        """Return the state after a number of staged polls."""
        return self._polls[polls - 1][0] if polls else 0

    def _rows_of(self, before: int, after: int) -> list[_Told]:
        """Return the rows that the next poll has to have, between two states."""
        payload = self.service.payload(before, after)
        match self._merging.how:
            case "append":
                return [(number, "") for number in payload]
            case "upsert":
                return [(number, UPDATE) for number in payload]
            case "ledger":
                first: dict[tuple[Any, ...], int] = {}
                for number in payload:
                    first.setdefault(self.service.key(number), number)
                return [(number, "") for key, number in first.items() if key not in self._keys]
            case "snapshot":
                return self._difference(self.service.payload(0, before), payload)

    def _difference(self, before: Sequence[int], after: Sequence[int]) -> list[_Told]:
        service = self.service
        old, new = ({service.key(number): number for number in numbers} for numbers in (before, after))
        told = [(number, DELETE) for key, number in old.items() if key not in new]
        told += [(number, INSERT) for key, number in new.items() if key not in old]
        for key in old.keys() & new.keys():
            if service.rows[old[key]] != service.rows[new[key]]:
                told += [(old[key], BEFORE), (new[key], UPDATE)]
        return told

    def asked(self, state: int, known: int) -> None:
        """Hear of a question from a state, by a driver that knows of this number of staged polls."""
        self.end(POLLS)
        if state < self._state(known) and self.broken is None:
            said = f"{self.name}: what comes after {state}, and poll {known - 1} has come to {self._state(known)}"
            self.broken = Broken("upstream is not asked again for what is staged", said)


class _ServiceAsker:
    """The user's function, as one driver has it. known: how many polls it knows to be staged."""

    def __init__(self, upstream: PollsUpstream, meet: Callable[[str], None]) -> None:
        self._upstream: Final = upstream
        self._meet: Final = meet
        self._known = upstream.end(POLLS)

    def __call__(self, state: int | None) -> Fetched:
        self._meet("fetch")
        self._upstream.asked(state or 0, self._known)
        found = self._upstream.service.answer(state)
        self._meet("fetched")
        return found

    def within(self, env: Env) -> Env:
        """Return the world as the poller knows it, and count what it stages."""

        def staged() -> None:
            self._known += 1

        return hearing_of_polls(env, staged)
