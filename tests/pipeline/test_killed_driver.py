"""A real driver process, killed at every named point and at fifty random instants, loses and doubles nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline import killable

import tidegauge as tg
from tidegauge.env import POINTS
from tidegauge.errors.command import FlowNeverRan, NotPublished

ALWAYS = {"acquire lease", "register", "append bindings", "stage", "commit output", "publish", "acknowledge"}
"""The effects that a run without failures comes to more than once or at its start."""


class Drivers:
    """Starts drivers and waits for them."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.killable"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )

    def start(self, root: Path, *, point: str | None = None, nth: int = 0) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"root": str(root), "point": point, "nth": nth}) + "\n")
        self.process.stdin.flush()
        return int(self.answer()["pid"])

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return dict(json.loads(line))

    def live(self, root: Path, *, point: str | None = None, nth: int = 0) -> bool:
        """Return whether the driver was killed; it must not end otherwise than well."""
        self.start(root, point=point, nth=nth)
        return self.ended()

    def ended(self) -> bool:
        end = self.answer()
        assert end["killed"] or end["code"] == 0, self.log.read_text()
        return bool(end["killed"])


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    started = Drivers(tmp_path_factory.mktemp("log") / "drivers.log")
    yield started
    assert started.process.stdin is not None
    started.process.stdin.close()
    started.process.wait(timeout=30)


def content(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every output with its epoch; partitions, which name this very file, left out."""
    flow = killable.make(root)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for output in flow.outputs:
        found[output] = []
        with suppress(FlowNeverRan, NotPublished):
            table = tg.read_arrow(flow, output)
            names = [name for name in table.column_names if name != "_partition"]
            found[output] = sorted(zip(*[table.column(name).to_pylist() for name in names], strict=True))
    return found


def published(root: Path) -> int:
    with suppress(FlowNeverRan):
        return tg.status(killable.make(root)).published
    return 0


@pytest.fixture(scope="module")
def undisturbed(drivers: Drivers, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], float]:
    """The rows of a run that nothing disturbed, and how long it took."""
    root = tmp_path_factory.mktemp("undisturbed")
    killable.fill(root)
    began = time.monotonic()
    assert not drivers.live(root)
    took = time.monotonic() - began
    rows = content(root)
    assert [len(rows[name]) for name in ("orders", "loud", "prices", "rows")] == [360, 360, 400, 500]
    return rows, took


def up_to(rows: dict[str, Any], epoch: int) -> dict[str, Any]:
    """The rows of epochs before `epoch`. The epoch is the last column of every output."""
    return {output: [row for row in found if row[-1] < epoch] for output, found in rows.items()}


def test_the_effects_that_a_run_comes_to_are_all_struck() -> None:
    unstruck = {point.split(" ", 1)[1] for point in POINTS} - ALWAYS
    assert unstruck == {"record schema", "advance since", "record failure", "release lease"}


@pytest.mark.parametrize("nth", [0, 1, 5])
@pytest.mark.parametrize(
    "point", [p for p in POINTS if p.split(" ", 1)[1] in ALWAYS | {"record schema", "release lease"}]
)
def test_killed_at_a_named_point(
    point: str, nth: int, drivers: Drivers, undisturbed: tuple[dict[str, Any], float], tmp_path: Path
) -> None:
    rows, _took = undisturbed
    killable.fill(tmp_path)
    drivers.live(tmp_path, point=point, nth=nth)
    assert content(tmp_path) == up_to(rows, published(tmp_path)), "what is published differs from the undisturbed run"
    assert not drivers.live(tmp_path)
    assert content(tmp_path) == rows


@pytest.mark.parametrize("fifth", range(5))
def test_killed_again_and_again_at_random_instants(
    fifth: int, drivers: Drivers, undisturbed: tuple[dict[str, Any], float], tmp_path: Path
) -> None:
    rows, took = undisturbed
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}, a fifth of the fifty: {fifth}")
    instants = random.Random(seed)
    kills = root_number = 0
    while kills < 10:
        root = tmp_path / str(root_number)
        root_number += 1
        killable.fill(root)
        for _life in range(6):
            pid = drivers.start(root)
            time.sleep(instants.uniform(0, took))  # the instant of death is the point of this test
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            kills += drivers.ended()
            assert content(root) == up_to(rows, published(root)), f"seed {seed}, folder {root.name}"
        assert not drivers.live(root)
        assert content(root) == rows, f"seed {seed}, folder {root.name}"
