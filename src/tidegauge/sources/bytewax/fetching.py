"""What all partitions of a bytewax source bring, as one poll: their items as rows, and their states in one.

    {"parts": [[name, the encoded state after its last item, how many items it has given], ...]}

The count makes the state of a partition without one move with its items. In place of that it has the name of its
run: a run that another driver was ahead of knows by it that its own items are not staged, and gives them again. A
partition that is no longer listed keeps its place in the state, for the day it comes back; a new one begins without.

A poll gives what waits in the partitions (see `pulling`), and forgets it once it is asked for what comes after: by
then it is staged. So what could not be staged is given again, and nothing is read from upstream twice in a run.

Invariant: the rows between two states are the items between them, of every partition.

>>> state_of("orders", {"a": PartPlace(7, 2), "b": PartPlace(None, 0)}, None).value
{'parts': [['a', 7, 2], ['b', None, 0]]}
>>> places_of(state_of("orders", {"a": PartPlace({"tuple": [1]}, 2)}, None))
{'a': PartPlace(state={'tuple': [1]}, items=2)}
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.bytewax import ConnectorUnfit
from tidegauge.errors.fromtime import InvalidState, StateTooLarge
from tidegauge.errors.polls import StateNotKept
from tidegauge.remap.fromtime import SourceState
from tidegauge.remap.fromtime.encoding import JsonValue
from tidegauge.sources.bytewax.apart import IN_THREADS, News, PullThreads
from tidegauge.sources.bytewax.pulling import Connector, Pull
from tidegauge.sources.bytewax.rows import rows_of
from tidegauge.sources.polls.poller import Brought

__all__ = ["KIND", "BytewaxFetch", "PartPlace", "places_of", "state_of"]

_log: Final = logging.getLogger(__name__)

KIND: Final = "tidegauge/bytewax"
"""The kind of the states of bytewax's sources."""

_ROWS: Final = 65_536
"""Items of a poll, after which no further batch is taken."""
_GATHER: Final = 0.1
"""Seconds for which a poll gathers what partitions go on to give."""


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where a partition is: its encoded state, and how many items it has given."""

    state: JsonValue
    items: int


def state_of(source: str, places: Mapping[str, PartPlace], before: SourceState | None) -> SourceState:
    """Return the state that a binding keeps; the watermark is carried. Raises `StateNotKept`."""
    parts: list[JsonValue] = [[name, place.state, place.items] for name, place in sorted(places.items())]
    watermark = None if before is None else before.watermark
    try:
        return SourceState(kind=KIND, source_id=source, value={"parts": parts}, watermark=watermark)
    except (InvalidState, StateTooLarge) as error:
        raise StateNotKept(source=source, problem=error.summary) from error


def places_of(state: SourceState | None) -> dict[str, PartPlace]:
    """Return the places of a state; none for one of another kind."""
    match None if state is None or state.kind != KIND else state.value:
        case {"parts": list(parts)}:
            return {name: PartPlace(kept, items) for name, kept, items in parts}
    return {}


@dataclass(kw_only=True)
class BytewaxFetch:
    """Reads a bytewax source; a `Fetch`, which one thread calls at a time.

    stateful: whether it is a `FixedPartitionedSource`. row: the user's function of an item, if any. timeout: seconds
    that a partition may take for one call. run: a name that no other run has. apart: where the partitions run.
    """

    source: str
    connector: Any
    stateful: bool
    step: str
    columns: pa.Schema
    row: Callable[[Any], Any] | None
    timeout: float
    run: str
    apart: PullThreads = IN_THREADS
    _news: News = field(init=False)
    _pulls: list[Pull] | None = None
    _places: dict[str, PartPlace] = field(default_factory=dict)
    _base: SourceState | None = None
    _given: tuple[SourceState, dict[Pull, int], dict[str, PartPlace]] | None = None
    """The state after the rows given last, how many batches that was of each partition, and where each is then."""
    _closed: bool = False

    def __post_init__(self) -> None:
        self._news = self.apart.news()

    def __call__(self, state: SourceState | None) -> Brought | None:
        """Return what came after a state. Raises the errors TG-0981 to TG-0985, `PollUnfit`, `StateNotKept`."""
        pulls = self._going_on_from(state)
        if not self._wait(pulls):
            return None
        taken = {pull: pull.first(_ROWS) for pull in pulls}
        places = dict(self._places)
        for pull, batches in taken.items():
            if batches:
                count = sum(len(batch.items) for batch in batches)
                before = places.get(pull.name, PartPlace(None, 0))
                state_after = batches[-1].state if self.stateful else self.run
                places[pull.name] = PartPlace(state_after, before.items + count)
        after = state_of(self.source, places, state)
        found = [
            rows_of(
                self.source, pull.name, [item for batch in batches for item in batch.items], self.columns, self.row
            )
            for pull, batches in taken.items()
            if batches
        ]
        self._given = after, {pull: len(batches) for pull, batches in taken.items()}, places
        with self._news:
            more = any(pull.busy or len(pull.waiting) > len(taken[pull]) for pull in pulls)
        return Brought(pa.concat_tables(found), after, more=more)

    def troubles(self) -> dict[str, TidegaugeError]:
        """Return what keeps single partitions from going on at present, by their names."""
        with self._news:
            now, found = self.apart.monotonic(), dict[str, TidegaugeError]()
            for pull in self._pulls or ():
                if pull.error is not None:
                    found[pull.name] = pull.error
                elif pull.since is not None and now - pull.since > self.timeout:
                    found[pull.name] = pull.blocked(now)
            return found

    def close(self) -> None:
        """End all threads, each after its present call."""
        self._closed = True
        for pull in self._pulls or ():
            pull.close()

    def _going_on_from(self, state: SourceState | None) -> list[Pull]:
        """Return the partitions, which give what comes after a state: the live ones, or others built from it."""
        if self._pulls is not None and self._given is not None and state == self._given[0]:
            _, given, self._places = self._given
            for pull, batches in given.items():
                pull.drop(batches)
        elif self._pulls is not None and not self.stateful:
            self._places = places_of(state)  # what waits cannot be read again, and nobody else has it
        elif self._pulls is None or state != self._base:
            self._open(state)
        self._base, self._given = state, None
        return self._pulls or []

    def _open(self, state: SourceState | None) -> None:
        for pull in self._pulls or ():
            pull.close()
        if state is not None and state.kind != KIND:
            _log.warning("source %s: its state of kind %s is not bytewax's: all is read", self.source, state.kind)
        self._pulls, self._places = None, places_of(state)
        told = Connector(self.source, type(self.connector).__qualname__)
        pulls = [
            Pull(
                name,
                self._building(name),
                state=self._places.get(name, PartPlace(None, 0)).state if self.stateful else None,
                told=told,
                news=self._news,
                stateless=not self.stateful,
                apart=self.apart,
            )
            for name in self._names(told)
        ]
        for pull in pulls:
            pull.begin()
        self._pulls = pulls
        if self._closed:
            self.close()

    def _building(self, name: str) -> Callable[[Any], Any]:
        if self.stateful:
            return lambda state: self.connector.build_part(self.step, name, state)
        return lambda _: self.connector.build(self.step, 0, 1)

    def _names(self, told: Connector) -> list[str]:
        """Return the names of the partitions there are. Raises `ConnectorUnfit`."""
        if not self.stateful:
            return ["worker"]
        about = {"source": told.source, "connector": told.kind}
        try:
            names = list(self.connector.list_parts())
        except Exception as error:
            detail = " ".join(f"raised {type(error).__name__}: {error}".split())[:200]
            raise ConnectorUnfit(**about, problem=detail) from error
        if odd := next((name for name in names if type(name) is not str), None):
            raise ConnectorUnfit(**about, problem=f"has {odd!r:.80}, which is no str")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConnectorUnfit(**about, problem=f"has {twice!r:.80} twice")
        return names

    def _wait(self, pulls: list[Pull]) -> bool:
        """Wait until anything is there, for a little more of it, or until all have nothing; whether anything is.

        Raises `PartitionRaised`, `PartitionStateNotKept`, and `PartitionBlocked` where no other one may still give.
        """
        with self._news:
            while not any(pull.waiting for pull in pulls):
                if self._closed:
                    return False
                if error := next((pull.error for pull in pulls if pull.error is not None), None):
                    raise error
                now = self.apart.monotonic()
                busy = [(pull.since, pull) for pull in pulls if pull.since is not None]
                if not busy:
                    return False
                left = max(since for since, _ in busy) + self.timeout - now
                if left <= 0:
                    raise min(busy, key=lambda one: one[0])[1].blocked(now)
                self._news.wait(left)
            self._news.wait_for(lambda: self._enough(pulls), _GATHER)
            return True

    def _enough(self, pulls: list[Pull]) -> bool:
        return sum(pull.held for pull in pulls) >= _ROWS or not any(pull.since is not None for pull in pulls)
