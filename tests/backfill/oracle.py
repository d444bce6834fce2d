"""How others add an output: two readers race through one log, and what to give is decided record by record.

A late output is given the past by a reader of its own (`b`), while the live reader (`u`) goes on for the others.
Where offsets are *inclusive* (the last one seen), each partition of the source goes through these states:

    | in state    | live record o           | record o of the past         | the past's reader is at o   |
    |-------------|-------------------------|------------------------------|-----------------------------|
    | B(b), b < o | drop it; the target is o| give it; o >= target -> C(o) | o >= target -> C(o)         |
    | B(b), b = o | drop it; -> F           |                              |                             |
    | B(b), b > o | drop it; -> C(b)        |                              |                             |
    | C(b), b < o | **give it**; -> F       | drop it                      | nothing                     |
    | C(b), b = o | drop it; -> F           | drop it                      | nothing                     |
    | C(b), b > o | drop it                 | drop it                      | nothing                     |
    | F           | give it                 | drop it                      | nothing                     |

The original raises `b` of a C to where its reader is. Then a record that was dropped in C is taken for one that was
given, and is lost (K7). Here it stays.

We decide nothing of this at run time: what is past and what is live is a fact of the remap table. So both must come
to the same rows, in the same order, however the two readers race.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["b", "u", "p"]
Event: TypeAlias = tuple[Kind, int]
"""A record of the past, one of the live reader, or where the past's reader is."""


@dataclass(frozen=True)
class SplitCatchUp:
    """The state of one partition. at: the last offset of the past that is done, None before the first."""

    state: Literal["B", "C", "F"] = "B"
    at: int | None = None
    target: int | None = None

    def step(self, kind: Kind, offset: int) -> tuple[SplitCatchUp, bool]:
        """Return the state after an event, and whether its record is given to the output."""
        if kind == "u":
            return self._live(offset)
        if self.state != "B":
            return self, False
        done = self.target is not None and offset >= self.target
        return replace(self, state="C" if done else "B", at=offset), kind == "b"

    def _live(self, offset: int) -> tuple[SplitCatchUp, bool]:
        if self.state == "F":
            return self, True
        if self.at == offset:
            return replace(self, state="F"), False
        behind = self.at is None or self.at < offset
        if self.state == "B":
            return replace(self, target=offset) if behind else replace(self, state="C"), False
        return (replace(self, state="F"), True) if behind else (self, False)

    def encode(self) -> str:
        """Return the state as JSON."""
        return json.dumps({"state": self.state, "at": self.at, "target": self.target})

    @staticmethod
    def decode(text: str) -> SplitCatchUp:
        """Return the state that `encode` described."""
        return SplitCatchUp(**json.loads(text))

    @staticmethod
    def appeared() -> SplitCatchUp:
        """Return the state of a partition that appears while the output is live: it has no past."""
        return SplitCatchUp("F")

    def moved(self) -> SplitCatchUp:
        """Return the state of a partition that moves to a live reader. Raises `ValueError` while it has a past."""
        if self.state != "F":
            raise ValueError(f"a partition in the state {self.state} has records that only its own reader gives")
        return self


def run(events: Iterable[Event], machine: SplitCatchUp | None = None) -> tuple[SplitCatchUp, list[int]]:
    """Return the last state, and the offsets that were given, in their order."""
    state, given = machine or SplitCatchUp(), []
    for kind, offset in events:
        state, emit = state.step(kind, offset)
        if emit:
            given.append(offset)
    return state, given


def events(text: str) -> list[Event]:
    """Return the events of a text such as `b0 b1 u1 p2`."""
    return [(word[0], int(word[1:])) for word in text.split()]  # type: ignore[misc]
