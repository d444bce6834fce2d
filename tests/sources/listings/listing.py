"""A folder of files, a source that lists it, and a driver of one source that binds as a flow does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tidegauge as tg
from tidegauge.env import Env, at_once
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import SEQUENCE
from tidegauge.remap.mint import checked_observation, mint
from tidegauge.sources.protocol import BadRecord

__all__ = ["Listings", "put"]

START = datetime(2026, 1, 1, tzinfo=UTC)


def put(path: Path, *ids: int, at: float = 0.0, text: str | None = None) -> Path:
    """Write a file of JSON lines that was changed some seconds after `START`, long ago by default."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'{{"n": {n}}}\n' for n in ids) if text is None else text)
    seconds = START.timestamp() + (at or -3600)
    os.utime(path, ns=(int(seconds * 1e9), int(seconds * 1e9)))
    return path


@dataclass
class Listings:
    """A driver that looks, binds and reads."""

    source: tg.ListingSource
    clock: float = 0.0
    bound: Bound = field(default_factory=Bound)
    point: Callable[[str], None] = lambda _point: None
    bad: list[BadRecord] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a run."""
        env = Env(monotonic=lambda: self.clock, now=lambda: START + timedelta(seconds=self.clock), point=self.point)
        self.attendant = self.source.attended(env, beside=at_once)

    def look(self) -> Observation:
        now = START + timedelta(seconds=self.clock)
        return checked_observation("it", SEQUENCE, self.bound, self.attendant.probe(self.bound, now=now))

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
        self.epochs.append(self.bound.frontier["polls"])
        return True

    def look_through(self, passed: float = 60.0) -> Observation:
        """Let time pass, list, and bind all that is new; return the last look."""
        self.clock += passed
        for _ in range(1000):
            seen = self.look()
            if not self.bind(seen) and not seen.coming and seen.upper == seen.end:
                return seen
        raise AssertionError("it never comes to an end")

    def slices(self, *cuts: int) -> list[Slice]:
        ends = (*cuts, self.bound.frontier["polls"])
        begins = (0, *cuts)
        return [Slice("it", i, "polls", a, b) for i, (a, b) in enumerate(zip(begins, ends, strict=True)) if a < b]

    def rows(self, *cuts: int) -> list[Any]:
        """Return the numbers of all bound files, read in epochs that end at these cuts."""
        pieces = self.slices(*cuts)
        lost = [
            number for piece in self.source.lost(pieces, self.bound) for number in range(piece.lower, piece.upper)
        ]
        rest = [
            Slice(piece.source, piece.epoch, piece.partition, number, number + 1)
            for piece in pieces
            for number in range(piece.lower, piece.upper)
            if number not in lost
        ]
        return [
            row["n"]
            for split in self.source.plan(rest if lost else pieces, self.bound)
            for batch in self.source.read(split, self.bad.append)  # type: ignore[arg-type]
            for row in batch.to_pylist()
        ]


def listing(root: Path, pattern: str = "in/**/*.jsonl", **given: Any) -> Listings:
    """Return a driver of the source of a folder."""
    given = {"format": tg.Json("n long"), "staging": root / "listings", "every": 60.0, **given}
    path = pattern if "://" in pattern else str(root / pattern)
    return Listings(tg.ListingSource(path, **given))
