"""`logrotate` as people run it: whatever it does to a log, each line that was looked at once is read once."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Literal

import pytest
from tests.waiting import eventually

import tidegauge as tg

LOGROTATE = shutil.which("logrotate", path=os.environ.get("PATH", "") + ":/usr/sbin")

CONFIG = """
{root}/log/app.log {{
    rotate 20
    {directives}
}}
"""

WAYS = {
    "create": "create",
    "dateext": "create\n dateext\n dateformat -%Y%m%d-{turn}",
    "dateext before the extension": "create\n dateext\n dateformat -%Y%m%d-{turn}\n extension .log",
    "copytruncate": "copytruncate",
    "compress": "create\n compress",
    "delaycompress": "create\n compress\n delaycompress",
    "copytruncate and compress": "copytruncate\n compress",
    "copytruncate, compress later": "copytruncate\n compress\n delaycompress",
    "olddir": "create\n olddir {root}/log/old\n compress\n delaycompress",
    "olddir and copytruncate": "copytruncate\n olddir {root}/log/old",
}


def flow_of(root: Path, pattern: str, on_data_loss: Literal["stop", "gap"] = "stop") -> tg.Dataflow:
    made = tg.Dataflow("logs", store=f"sqlite:///{root}/flow.db", tick=0.01)
    files = tg.FileSource(f"{root}/log/{pattern}", format=tg.Json("n long"), settle=0.0, on_data_loss=on_data_loss)
    log = made.source("log", files)
    made.sink("lines", log, tg.ParquetSink(f"{root}/lake"))
    return made


IN_SHORT = ("create", "copytruncate and compress")
"""The ways that are tried every time; all of them take long."""


@pytest.mark.skipif(LOGROTATE is None, reason="there is no logrotate")
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way in IN_SHORT else pytest.mark.long) for way in WAYS]
)
@pytest.mark.parametrize("pattern", ["app.log", "**/app*"])
def test_every_line_is_read_once(tmp_path: Path, way: str, pattern: str) -> None:
    if "olddir" in way and pattern == "app.log":
        return  # a log that is moved to another folder has to be named by the pattern
    (tmp_path / "log" / "old").mkdir(parents=True)
    config, state, log = tmp_path / "rotate.conf", tmp_path / "state", tmp_path / "log" / "app.log"
    flow, written = flow_of(tmp_path, pattern), 0

    def write(count: int) -> None:
        nonlocal written
        with log.open("a") as stream:
            stream.writelines(f'{{"n": {n}}}\n' for n in range(written, written + count))
        written += count

    for turn in range(4):
        write(3 + turn)
        flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        if pattern != "app.log":
            write(2)  # looked at under its rotated name only
        directives = WAYS[way].format(root=tmp_path, turn=turn)
        config.write_text(CONFIG.format(root=tmp_path, directives=directives))
        assert LOGROTATE is not None
        subprocess.run([LOGROTATE, "-f", "-s", str(state), str(config)], check=True, timeout=60)
        if turn % 2 or pattern == "app.log":
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    assert sorted(tg.read_arrow(flow, "lines").column("n").to_pylist()) == list(range(written))
    [source] = tg.status(flow).sources
    assert (source.state, source.lag, source.lost) == ("idle", 0, 0)


@pytest.mark.long
@pytest.mark.skipif(LOGROTATE is None, reason="there is no logrotate")
@pytest.mark.parametrize("way", ["delaycompress", "copytruncate, compress later"])
def test_beside_a_writer_that_never_rests(tmp_path: Path, way: str) -> None:
    """No line comes twice. None is missing, but those that `copytruncate` itself loses between copy and cut."""
    (tmp_path / "log").mkdir()
    config, state, log = tmp_path / "rotate.conf", tmp_path / "state", tmp_path / "log" / "app.log"
    # With `create` logrotate would make the log anew beside the writer, who does so too, and might fail over that.
    directives = WAYS[way].replace("create", "nocreate") if way == "delaycompress" else WAYS[way]
    config.write_text(CONFIG.format(root=tmp_path, directives=directives))
    flow, over, written = flow_of(tmp_path, "app*", on_data_loss="gap"), threading.Event(), 0

    def write() -> None:
        nonlocal written
        while not over.is_set():
            with log.open("a") as stream:
                stream.write(f'{{"n": {written}}}\n')
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _turn in range(15):
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))
            assert LOGROTATE is not None
            subprocess.run([LOGROTATE, "-f", "-s", str(state), str(config)], check=True, timeout=60)
            eventually(log.exists)
    finally:
        over.set()
        writer.join()
    flow.run("caught-up", engine=tg.LocalEngine(threads=0))
    rows = tg.read_arrow(flow, "lines").column("n").to_pylist()
    assert len(rows) == len(set(rows))
    missing = sorted(set(range(written)) - set(rows))
    assert not missing or "copytruncate" in way
    [source] = tg.status(flow).sources
    assert (source.state, source.lag) == ("idle", 0)
