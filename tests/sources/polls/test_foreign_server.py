"""A server that nobody here wrote: Python's own for folders, which knows Last-Modified and nothing of us."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
