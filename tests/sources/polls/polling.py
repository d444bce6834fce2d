"""An upstream in memory, a source that polls it, and a driver of one source that binds as a flow does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import tidegauge as tg
from tidegauge.env import Env, at_once
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import SEQUENCE
from tidegauge.remap.mint import checked_observation, mint
from tidegauge.sources.abilities import Attendant

__all__ = ["NOW", "Clock", "Driver", "Pages", "rows_of"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


Polled: TypeAlias = tg.PollingSource | tg.HttpSource | tg.BytewaxSource


@dataclass
class Clock:
    """Time that passes when a test says so."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Pages:
    """Rows with numbers, which a function gives from a cursor on, some at a time. calls: the cursors it was given."""

    size: int = 3
    rows: list[int] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    wrong: Callable[[], Any] | None = None

    def __call__(self, cursor: int | None) -> Any:
        self.calls.append(cursor)
        if self.wrong is not None:
            return self.wrong()
        at = cursor or 0
        page = self.rows[at : at + self.size]
        end = at + len(page)
        return tg.Fetched([{"n": n} for n in page], end or None, more=end < len(self.rows))


class Driver:
    """Binds a source by itself, as a flow does: what is checked, minted and kept as the store keeps it."""

    def __init__(self, source: Polled, *, bound: Bound | None = None, env: Env | None = None) -> None:
        self.clock = Clock()
        self.source = source
        self.env = env or Env(monotonic=self.clock.monotonic)
        self.bound = bound or Bound()
        self.poller: Attendant = source.attended(self.env, beside=at_once)
        self.bindings = 0

    def look(self) -> Observation:
        return checked_observation("it", SEQUENCE, self.bound, self.poller.probe(self.bound, now=NOW))

    def bind(self, seen: Observation) -> bool:
        """Bind an observation; whether there was anything to bind."""
        states = {} if self.bound.state is None else {"it": self.bound.state}
        if not (found := mint({"it": self.bound.frontier}, {"it": seen}, states=states)):
            return False
        details = json.loads(json.dumps({p: dict(detail) for p, detail in found["it"].details.items()}))
        self.bound = Bound(
            frontier=found["it"].frontier,
            details={**self.bound.details, **details},
            schema=self.source.schema,
            state=found["it"].state or self.bound.state,
            incarnation=self.bound.incarnation,
        )
        self.bindings += 1
        return True

    def poll(self) -> bool:
        """Let the time come, look, and bind until nothing is left; whether anything was bound."""
        self.clock.now += getattr(self.source, "every", 0.0)
        moved = False
        for _ in range(1000):
            seen = self.look()
            moved = self.bind(seen) or moved
            if not seen.more and not seen.coming and seen.upper == self.bound.frontier:
                return moved
        raise AssertionError("it never comes to an end")

    def rows(self, lower: int = 0) -> list[dict[str, Any]]:
        return rows_of(self.source, self.bound, lower)


def rows_of(source: Polled, bound: Bound, lower: int = 0) -> list[dict[str, Any]]:
    """Return all rows that are bound."""
    pieces = [Slice("it", 0, p, lower, upper) for p, upper in bound.frontier.items() if lower < upper]
    return [
        row
        for split in source.plan(pieces, bound)
        for batch in source.read(split, lambda _record: None)  # type: ignore[arg-type]
        for row in batch.to_pylist()
    ]


def polling(root: Path, function: Any, **given: Any) -> tg.PollingSource:
    return tg.PollingSource(function, **{"columns": "n long", "staging": root / "polls", "every": 60.0, **given})
