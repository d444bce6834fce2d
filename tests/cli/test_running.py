"""`run`: what it says, how it is stopped, and who may run what."""

from __future__ import annotations

import getpass
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.cli.conftest import Shop, Under

import tidegauge as tg
from tidegauge.cli import main

CATCH_UP = ("run", "shop.py", "--until", "caught-up", "--engine", "local")


def test_run_until_caught_up_says_what_happened_in_plain_lines(shop: Shop) -> None:
    shop.write(1, 2, 3)
    done = shop(*CATCH_UP)
    assert done.code == 0, done.err
    assert done.out == ""
    assert "\x1b" not in done.err
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "TIME ", line) for line in done.err.splitlines()]
    assert lines == [
        "TIME source orders: running",
        "TIME output orders: live",
        "TIME output slow: live",
        "TIME published epoch 0: orders 3 rows, slow 3 rows; orders 0 bytes behind",
        "shop: caught up; epoch 0 is the last published",
    ]
    assert shop.rows("orders") == shop.rows("slow") == [(1, 0), (2, 0), (3, 0)]
    again = shop(*CATCH_UP)
    assert "epoch 0 is published already\n" in again.err
    assert " rows" not in again.err
    assert again.err.endswith("shop: caught up; epoch 0 is the last published\n")


def test_run_of_a_pattern_that_matches_nothing_says_that_it_waits(shop: Shop) -> None:
    done = shop(*CATCH_UP)
    assert done.code == 0, done.err
    assert f"source orders: starting (waiting: no file matches '{shop.root}/in/*.jsonl')\n" in done.err
    assert done.err.endswith("shop: caught up; no epoch is published\n")
    assert f"waiting: no file matches '{shop.root}/in/*.jsonl'" in shop("status", "shop.py").out


@pytest.mark.parametrize("signalled", [Under.interrupt, Under.terminate, Under.hang_up])
def test_the_first_interrupt_finishes_the_epoch_under_way(signalled: Callable[[Under], None], shop: Shop) -> None:
    shop.write(1)
    shop.catch_up()
    shop.write(2, 3)
    shop.hold()
    run = shop.start("run", "shop.py", "--engine", "local")
    run.until(shop.held, "an epoch under way")
    signalled(run)
    run.says("stopping after the epoch under way; once more to stop at once\n")
    shop.write(4)
    assert run.process.poll() is None, "the epoch is still under way"
    shop.release()
    assert run.ended() == 0
    assert run.err().endswith("shop: stopped; epoch 1 is the last published\n")
    assert shop.rows("orders") == shop.rows("slow") == [(1, 0), (2, 1), (3, 1)]
    assert tg.status(shop.flow).running == ""
    shop.catch_up()
    assert shop.rows("slow") == [(1, 0), (2, 1), (3, 1), (4, 2)]


def test_an_idle_flow_stops_at_the_first_interrupt(shop: Shop) -> None:
    shop.write(1)
    run = shop.start("run", "shop.py", "--engine", "local")
    run.says("published epoch 0")
    run.interrupt()
    assert run.ended() == 0
    assert run.err().endswith("shop: stopped; epoch 0 is the last published\n")


@pytest.mark.long
def test_a_process_that_was_started_to_ignore_hang_ups_ignores_them(shop: Shop) -> None:
    shop.write(1)
    run = shop.start("run", "shop.py", "--engine", "local", through=("nohup",))
    run.says("published epoch 0")
    run.hang_up()
    shop.write(2)
    run.says("published epoch 1")
    run.interrupt()
    assert run.ended() == 0


def test_a_run_that_is_stopped_with_a_failed_source_says_so_by_its_exit_code(shop: Shop) -> None:
    text = (shop.root / "shop.py").read_text()
    more = "flow.sink('b', flow.source('b', tg.GeneratorSource(rate=9, columns='n long')), tg.ParquetSink('b'))"
    (shop.root / "shop.py").write_text(f"{text}\n{more}\n")
    shop.write(1)
    assert shop(*CATCH_UP).code == 0
    (shop.root / "in" / "1.jsonl").write_text("no more\n" * 9)
    run = shop.start("run", "shop.py", "--engine", "local")
    run.says("source orders: failed")
    run.interrupt()
    assert run.ended() == 1
    assert "TG-0320: " in run.err()


def test_an_exception_that_is_none_of_ours_is_not_called_a_newer_versions(shop: Shop) -> None:
    text = (shop.root / "shop.py").read_text()
    (shop.root / "shop.py").write_text(f"{text}\nobject.__setattr__(flow.sources['orders'], 'format', None)\n")
    shop.write(1)
    done = shop(*CATCH_UP)
    assert done.code == 1
    assert "TG-0002: AttributeError: " in done.err
    assert "newer version" not in done.err


def test_an_interrupt_while_the_program_is_loaded_ends_it_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        """Comes upon the command line while it is looked for."""

        def find_spec(self, name: str, *_: object) -> None:
            if name == "tidegauge.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "tidegauge.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit, match=r"^Stopped before anything was done\.$"):
        main()


def test_an_interrupt_while_the_flow_is_loaded_ends_it_in_one_line(shop: Shop) -> None:
    (shop.root / "shop.py").write_text("import sys, time; sys.stderr.write('loading\\n'); time.sleep(600)")
    run = shop.start("run", "shop.py")
    run.says("loading")
    run.interrupt()
    assert run.ended() == 1
    assert run.err().splitlines() == ["loading", "Stopped before anything was done."]


def stopped_twice(shop: Shop, run: Under) -> None:
    run.until(shop.held, "an epoch under way")
    run.interrupt()
    run.says("once more to stop at once")
    run.interrupt()
    assert run.ended() == 1, "and nobody has let the function return"
    assert "Stopped at once. Nothing is lost or doubled: the next run goes on from what is published." in run.err()
    assert "Traceback" not in run.err()


def test_a_second_interrupt_stops_at_once_and_the_next_run_goes_on(shop: Shop) -> None:
    shop.write(1)
    shop.catch_up()
    shop.write(2, 3)
    shop.hold()
    stopped_twice(shop, shop.start("run", "shop.py", "--engine", "local"))
    assert shop.rows("orders") == shop.rows("slow") == [(1, 0)]
    shop.release()
    assert shop(*CATCH_UP).err.endswith("shop: caught up; epoch 1 is the last published\n")
    assert shop.rows("orders") == shop.rows("slow") == [(1, 0), (2, 1), (3, 1)]


def test_a_second_driver_is_refused_with_who_runs_the_flow_where_and_since_when(shop: Shop) -> None:
    shop.write(1)
    run = shop.start("run", "shop.py", "--engine", "local")
    run.says("published epoch 0")
    done = shop(*CATCH_UP)
    assert done.code == 1
    host = re.escape(socket.gethostname())
    who = rf"{getpass.getuser()} on {host}, process {run.process.pid}, since \d{{4}}-\d\d-\d\d "
    assert re.match(f"TG-0204: flow 'shop' is already run by {who}", done.err), done.err
    assert "what to do:   stop that process" in done.err
    assert re.match(who, tg.status(shop.flow).running)
    assert re.search(f"shop  running: {who}", shop("status", "shop.py").out)
    shop.write(2)
    run.says("published epoch 1")
    run.interrupt()
    assert run.ended() == 0


def test_a_driver_that_was_killed_does_not_keep_the_next_one_out(shop: Shop) -> None:
    shop.write(1)
    run = shop.start("run", "shop.py", "--engine", "local")
    run.says("published epoch 0")
    run.process.kill()
    assert run.ended() == -signal.SIGKILL
    shop.write(2)
    shop.catch_up()
    assert shop.rows("orders") == [(1, 0), (2, 1)]


class Terminal:
    """A terminal of its own, whose Ctrl-C is what reaches the process."""

    def __init__(self, shop: Shop, *arguments: str) -> None:
        self.master, slave = os.openpty()
        name = os.ttyname(slave)
        self.shown = ""
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$0" "$@" <{name} >{name} 2>{name}', sys.executable, "-m", "tidegauge", *arguments],
            cwd=shop.root,
            env=environment,
            start_new_session=True,
        )
        self.slave = slave

    def read_until(self, text: str) -> None:
        while text not in self.shown:
            self.shown += os.read(self.master, 65536).decode(errors="replace")

    def press_ctrl_c(self) -> None:
        os.write(self.master, b"\x03")

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.slave)
        os.close(self.master)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.timeout(90)
def test_a_terminal_shows_one_live_line_a_source_and_an_output_and_its_ctrl_c_stops_the_run(shop: Shop) -> None:
    shop.write(1, 2)
    terminal = Terminal(shop, "run", "shop.py", "--engine", "local")
    try:
        terminal.read_until("→ slow")
        terminal.read_until("2 rows")
        assert "\x1b[?25l" in terminal.shown, "the cursor is hidden while the view is live"
        terminal.press_ctrl_c()
        terminal.read_until("is the last published")
        terminal.read_until("\x1b[?25h")  # the cursor is back
        assert terminal.process.wait(timeout=30) == 0
    finally:
        terminal.close()
    last = plain(terminal.shown)
    lines = [line.split() for line in last.splitlines()]
    assert ["state", "position", "lag", "rows/s", "epoch"] in lines
    assert [line[:8] for line in lines if line[:2] == ["orders", "running"]][-1] == [
        *("orders", "running", "48", "bytes", "0", "bytes"),
        *("0", "s"),
    ]
    assert [line[:5] for line in lines if line[:3] == ["→", "slow", "live"]][-1] == ["→", "slow", "live", "2", "rows"]
    assert "shop: stopped; epoch 0 is the last published" in last


@pytest.mark.spark
@pytest.mark.long
def test_a_second_interrupt_stops_a_job_of_spark_s_at_once(shop: Shop) -> None:
    shop.write(1)
    shop.catch_up()
    shop.write(2)
    shop.hold()
    stopped_twice(shop, shop.start("run", "shop.py"))
    shop.release()
    shop.catch_up()
    assert shop.rows("orders") == shop.rows("slow") == [(1, 0), (2, 1)]
