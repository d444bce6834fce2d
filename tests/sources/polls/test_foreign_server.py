"""A server that nobody here wrote: Python's own for folders, which knows Last-Modified and nothing of us."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources.polls.polling import Driver

import tidegauge as tg


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "www").mkdir()
    command = [
        sys.executable,
        "-u",
        "-m",
        "http.server",
        "0",
        "--bind",
        "127.0.0.1",
        "--directory",
        f"{tmp_path}/www",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert found
        yield found[0]
        server.kill()


def put(tmp_path: Path, text: str, *, at: int) -> None:
    path = tmp_path / "www" / "rates.csv"
    path.write_text(text)
    os.utime(path, (at, at))


def test_a_file_behind_a_server_of_files_is_polled_by_its_time(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    source = tg.HttpSource(
        f"{address}/rates.csv",
        format=tg.Csv("n long, s string"),
        staging=tmp_path / "polls",
        merge="snapshot",
        key="n",
    )
    put(tmp_path, "n,s\n1,a\n2,b\n", at=1_700_000_000)
    one = Driver(source)
    assert one.poll()
    assert one.bound.state is not None
    assert one.bound.state.kind == "odf/last-modified"
    assert not one.poll()
    put(tmp_path, "n,s\n1,a\n2,B\n", at=1_700_000_000)  # in the same second: the server says that nothing changed
    assert not one.poll()
    put(tmp_path, "n,s\n1,a\n2,B\n", at=1_700_000_002)
    assert one.poll()
    assert [(row["n"], row["s"], row["_op"]) for row in one.rows(1)] == [(2, "b", "before"), (2, "B", "update")]


def test_a_file_that_changes_again_in_the_second_of_its_last_change_is_read(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is the same then, so the server would say for good that nothing changed."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    source = tg.HttpSource(f"{address}/rates.csv", format=tg.Csv("n long, s string"), staging=tmp_path / "polls")
    one, soon = Driver(source), int(time.time()) + 3600  # so that it stays a new one, however slow this machine is
    put(tmp_path, "n,s\n1,a\n", at=soon)
    assert one.poll()
    assert not one.poll(), "its body tells that it is the same"
    put(tmp_path, "n,s\n1,A\n", at=soon)
    assert one.poll()
    assert [row["s"] for row in one.rows()] == ["a", "A"]
    put(tmp_path, "n,s\n1,A\n", at=1_700_000_000)
    assert one.poll(), "it is asked by its time from now on"
    assert one.bound.state is not None
    assert (one.bound.state.kind, len(one.rows())) == ("odf/last-modified", 2)
