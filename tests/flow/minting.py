"""What the tests of minting share: flows on a clock that is moved by hand, and sources that can be made to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.flow.by_hand import Clock, Run, World
from tests.flow.recorder import Recorder

import tidegauge as tg
from tidegauge.errors.running import SourceUnreachable
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.policy import Policy

START = Clock().now()


@dataclass
class Wall(Clock):
    """A clock whose time of day can be put forward and back."""

    put: float = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.put)


@dataclass
class Asked(Recorder):
    """A source that notes when it is asked, and whose answer can be replaced."""

    witness: Callable[[Any], None] = lambda _frontier: None
    times: list[datetime] = field(default_factory=list)
    instead: Callable[[], Observation] | None = None

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        self.times.append(now)
        return self.inner.probe(bound, now=now) if self.instead is None else self.instead()

    def hide(self) -> None:
        """Let nobody find it from now on."""

        def fail() -> Observation:
            raise SourceUnreachable(source="it", error="OSError", detail="no route to host")

        self.instead = fail

    def show(self) -> None:
        self.instead = None


def rows(count: int | None = None, *, rate: float | None = 10, **how: Any) -> tg.GeneratorSource:
    """Rows of one number, at ten a second since the world began: `1 + 10 t` at second `t`."""
    return tg.GeneratorSource(count, columns="n long", rate=rate, start=START, **how)


def flow(
    root: Path, tick: float | Policy, /, required: tuple[str, ...] = (), store: str | None = None, **sources: Any
) -> tg.Dataflow:
    """Each source into a table of its own."""
    made = tg.Dataflow("minting", store=store or f"sqlite:///{root}/flow.db", tick=tick)
    for name, source in sources.items():
        rows = made.source(name, source, required=name in required)
        made.sink(name, rows, tg.ParquetSink(str(root / "lake" / name)))
    return made


def begin(
    root: Path, tick: float | Policy, /, required: tuple[str, ...] = (), clock: Clock | None = None, **sources: Any
) -> Run:
    """Begin a life of such a flow, at second 0."""
    return World(root, lambda _world: flow(root, tick, required, **sources), clock=clock or Clock()).start()


def at(run: Run, until: float, *, every: float = 0.5) -> None:
    """Step from where the clock is to this second."""
    clock = run.world.clock
    while clock.seconds < until:
        run.step(every)


def state(run: Run, source: str) -> str:
    return run.runner.board.sources[source].state


def awaited(run: Run) -> tuple[str, ...]:
    return run.runner.board.awaited


def minted(run: Run) -> list[float]:
    """The seconds at which the epochs were minted."""
    return [(record.minted_at - START).total_seconds() for record, _sizes in tg.epochs(run.flow)]


def sizes(run: Run) -> list[dict[str, int]]:
    """What each epoch binds of each source."""
    return [dict(sizes) for _record, sizes in tg.epochs(run.flow)]
