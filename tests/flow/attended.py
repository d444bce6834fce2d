"""Lives of a flow whose source has an attendant: steps by hand until its rows are in, or the driver dies."""

from __future__ import annotations

from contextlib import suppress

from tests.flow.by_hand import Crash, World

import tidegauge as tg
from tidegauge.errors.command import FlowNeverRan, NotPublished

__all__ = ["live", "numbers"]


def numbers(world: World, output: str = "orders") -> list[int]:
    with suppress(NotPublished, FlowNeverRan):
        return sorted(tg.read_arrow(world.make(world), output)["n"].to_pylist())
    return []


def live(world: World, rows: int) -> bool:
    """One life, until all rows are in, or it dies; whether it died."""
    try:
        run = world.start()
        for _ in range(200):
            run.step()
            if len(numbers(world)) == rows:
                break
        run.abandon()
    except Crash:
        world.crash_at = None
        world.clock.seconds += 60
        return True
    return False
