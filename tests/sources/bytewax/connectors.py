"""Sources of bytewax that a test makes: partitions of numbers, whose states are of any type, and which misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bytewax.inputs import DynamicSource, FixedPartitionedSource, StatefulSourcePartition, StatelessSourcePartition

__all__ = ["Blocked", "Numbers", "Part", "Radio", "until"]


@dataclass
class Part(StatefulSourcePartition[Any, Any]):
    """Numbers from a place on. `wrong` is called before each batch, and may raise, or wait."""

    of: Numbers
    name: str
    at: int

    def next_awake(self) -> datetime | None:
        return self.of.awake(self.name) if self.of.awake is not None else None

    def next_batch(self) -> list[Any]:
        self.of.calls.append((self.name, self.at))
        if self.of.wrong is not None:
            self.of.wrong(self.name, self.at)
        items = self.of.parts[self.name][self.at : self.at + self.of.size]
        if not items and self.of.ends:
            raise StopIteration
        self.at += len(items)
        return items

    def snapshot(self) -> Any:
        return self.of.shape(self.at)

    def close(self) -> None:
        self.of.closed.append(self.name)


@dataclass
class Numbers(FixedPartitionedSource[Any, Any]):
    """Partitions of items by name, some at a time. shape: what a state is made of its place; place: the way back.

    calls: the partition and place of each call; built: of each partition, the states that it was built from.
    """

    parts: dict[str, list[Any]]
    size: int = 2
    ends: bool = False
    shape: Callable[[int], Any] = lambda at: at
    place: Callable[[Any], int] = lambda state: state
    awake: Callable[[str], datetime | None] | None = None
    wrong: Callable[[str, int], None] | None = None
    calls: list[tuple[str, int]] = field(default_factory=list)
    built: list[tuple[str, Any]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def list_parts(self) -> list[str]:
        return list(self.parts)

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Part:
        self.built.append((for_part, resume_state))
        return Part(self, for_part, 0 if resume_state is None else self.place(resume_state))


@dataclass
class Radio(DynamicSource[Any]):
    """What is on air now: nothing comes twice, and nothing is kept."""

    air: list[Any] = field(default_factory=list)
    built: int = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSourcePartition[Any]:
        assert (worker_index, worker_count) == (0, 1)
        self.built += 1
        radio = self

        class Listening(StatelessSourcePartition[Any]):
            def next_batch(self) -> list[Any]:
                return [radio.air.pop(0)] if radio.air else []

        return Listening()


class Blocked:
    """A `wrong` that waits at a place of a partition until it is let go."""

    def __init__(self, name: str, at: int) -> None:
        self.where = name, at
        self.gate = threading.Event()
        self.reached = threading.Event()

    def __call__(self, name: str, at: int) -> None:
        if (name, at) == self.where:
            self.reached.set()
            self.gate.wait(60)


def until(what: Callable[[], bool], tries: int = 3000) -> None:
    """Wait until something in another thread has come to pass."""
    pause = threading.Event()
    for _ in range(tries):
        if what():
            return
        pause.wait(0.01)
    raise AssertionError("it never comes to pass")
