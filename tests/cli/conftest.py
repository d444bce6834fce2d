"""The command line as its users have it: a process, in a folder with a flow's file and a landing folder."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually
from tests.warm import Beside, Warm
from typer.testing import CliRunner, Result

import tidegauge as tg
from tidegauge.cli.app import app

Ask = Callable[..., Result]

SHOP = '''
import time
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent


def wait(batch):
    """Come to a stop in the middle of an epoch while the folder says so."""
    if batch.num_rows and (HERE / "hold").exists():
        (HERE / "held").touch()
        while (HERE / "hold").exists():
            time.sleep(0.01)
    return batch


flow = tg.Dataflow("shop", store=f"sqlite:///{HERE}/shop.db", tick=0.05)
orders = flow.source("orders", tg.FileSource(str(HERE / "in" / "*.jsonl"), format=tg.Json("id long, user string")))
flow.sink("orders", orders, tg.DeltaSink(str(HERE / "lake" / "orders")))
flow.sink("slow", orders.map_batches(wait), tg.ParquetSink(str(HERE / "lake" / "slow")))
'''


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Under:
    """A command under way, with its error stream in a file."""

    process: Beside | subprocess.Popen[bytes]
    log: Path

    def err(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def until(self, met: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        """Wait for a condition; the process must not end before."""

        def come() -> bool:
            over = self.process.poll() is not None
            if met():
                return True
            assert not over, f"ended before {what}:\n{self.err()}"
            return False

        eventually(come, within=seconds, otherwise=lambda: f"no {what} after {seconds} s:\n{self.err()}")

    def says(self, text: str) -> None:
        self.until(lambda: text in self.err(), repr(text))

    def interrupt(self) -> None:
        """Signal the whole process group, as a terminal does for Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Signal the process, as `kill` does."""
        self.process.terminate()

    def hang_up(self) -> None:
        """Signal the process, as the system does when its terminal is closed."""
        self.process.send_signal(signal.SIGHUP)

    def ended(self, seconds: float = 60.0) -> int:
        return self.process.wait(timeout=seconds)


@dataclass
class Shop:
    """A folder with a flow."""

    root: Path
    warm: Warm
    started: list[Under] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}

    def __call__(self, *arguments: str, cwd: Path | None = None) -> Done:
        """Run a command to its end."""
        done = self.warm(*arguments, cwd=cwd or self.root, env=self.environment(), timeout=120)
        return Done(done.returncode, done.stdout, done.stderr)

    @property
    def flow(self) -> tg.Dataflow:
        """The flow, made anew in this process, which is quicker than a process of its own."""
        flow = runpy.run_path(str(self.root / "shop.py"))["flow"]
        assert isinstance(flow, tg.Dataflow)
        return flow

    def catch_up(self) -> None:
        self.flow.run(until="caught-up", engine="local")

    def start(self, *arguments: str, through: tuple[str, ...] = ()) -> Under:
        """Start a command that goes on beside the test. through: another command, which starts it."""
        log = self.root / f"log{len(self.started)}"
        process: Beside | subprocess.Popen[bytes]
        if through:
            with log.open("wb") as err:
                process = subprocess.Popen(
                    [*through, sys.executable, "-m", "tidegauge", *arguments],
                    cwd=self.root,
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=err,
                    start_new_session=True,
                )
        else:
            process = self.warm.start(*arguments, cwd=self.root, env=self.environment(), err=log)
        under = Under(process, log)
        self.started.append(under)
        return under

    def write(self, *numbers: int, file: str = "1.jsonl") -> None:
        (self.root / "in").mkdir(exist_ok=True)
        with (self.root / "in" / file).open("a", encoding="utf-8") as out:
            out.write("".join(json.dumps({"id": n, "user": f"u{n}"}) + "\n" for n in numbers))

    def hold(self) -> None:
        """Let the next epoch come to a stop in the middle."""
        (self.root / "held").unlink(missing_ok=True)
        (self.root / "hold").touch()

    def held(self) -> bool:
        return (self.root / "held").exists()

    def release(self) -> None:
        (self.root / "hold").unlink(missing_ok=True)

    def rows(self, output: str) -> list[tuple[int, int]]:
        """Numbers and epochs of an output's rows, read in this process."""
        table = tg.read_arrow(self.flow, output)
        return sorted(zip(table.column("id").to_pylist(), table.column("_epoch").to_pylist(), strict=True))


def make_shop(root: Path, warm: Warm) -> Shop:
    (root / "shop.py").write_text(SHOP, encoding="utf-8")
    return Shop(root, warm)


@pytest.fixture
def shop(tmp_path: Path, warm: Warm) -> Iterator[Shop]:
    """A flow that has never run."""
    shop = make_shop(tmp_path, warm)
    yield shop
    shop.release()
    for under in shop.started:
        if under.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(under.process.pid, signal.SIGKILL)
            under.process.wait()


@pytest.fixture
def ask(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs a command in this process, which is quicker than in one of its own."""
    monkeypatch.chdir(shop.root)
    return lambda *arguments: CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def open_shop(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Shop:
    """A flow with three epochs of rows in its tables. Nobody writes to it."""
    shop = make_shop(tmp_path_factory.mktemp("shop"), warm)
    for numbers in ((1, 2), (3,), (4, 5, 6)):
        shop.write(*numbers)
        shop.catch_up()
    return shop
