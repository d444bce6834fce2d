"""The plugin of pytest, as a project has it that installs Tidegauge and names no plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import ROOT
from tests.postgres import Server

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.testing import HandClock
from tidegauge.testing.plugin import SERVER

USES = """
import sys


def test_nothing_is_loaded_by_the_plugin():
    assert not {"pyspark", "confluent_kafka", "pyarrow", "sqlalchemy", "psycopg"} & set(sys.modules)


def test_the_fixtures_are_there(tidegauge_store, virtual_time, request):
    assert tidegauge_store.startswith("sqlite:///")
    assert request.getfixturevalue("tidegauge_store") == tidegauge_store
"""
SPARK = """
def test_spark(local_spark):
    assert local_spark.range(3).count() == 3
    assert local_spark.conf.get("spark.sql.session.timeZone") == "UTC"
"""


def played(folder: Path, text: str, *options: str, **environment: str) -> str:
    """Run pytest on one file, in a process where Tidegauge's entry points are found; return what it printed."""
    (folder / "test_uses.py").write_text(text)
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    said = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items())
        for group, found in points.items()
    )
    installed = folder / "site" / "shop_tidegauge-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "entry_points.txt").write_text(said)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-tidegauge\nVersion: 1\n")
    path = os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_uses.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def test_its_fixtures_are_found_and_loading_it_is_cheap(tmp_path: Path) -> None:
    assert "2 passed" in played(tmp_path, USES)


@pytest.mark.long
def test_a_conftest_that_names_it_loads_it_once(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tidegauge.testing.plugin"]\n')
    assert "2 passed" in played(tmp_path, USES, "-p", "tidegauge.testing.plugin")


def test_rows_come_with_the_time(tidegauge_store: str, virtual_time: HandClock, tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=tidegauge_store)
    rows = flow.source("rows", tg.GeneratorSource(columns="id long", rate=1.0))
    flow.sink("rows", rows, tg.ParquetSink(f"{tmp_path}/lake"))
    counts = []
    for seconds in (0, 0, 9):
        virtual_time.advance(seconds)
        flow.run(until="caught-up", engine=tg.LocalEngine(threads=0), env=virtual_time.env)
        counts.append(tg.read_arrow(flow, "rows").num_rows)
    assert counts == [1, 1, 10]


@pytest.mark.long
def test_it_has_a_session_of_spark(tmp_path: Path) -> None:
    assert "1 passed" in played(tmp_path, SPARK)


class TestOnPostgres:
    """The store of a test is a schema of its own, and is gone with it."""

    @pytest.fixture
    def server(self, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
        monkeypatch.setenv(SERVER, postgres.address("postgres"))
        return postgres

    @pytest.fixture
    def gone(self, server: Server) -> Iterator[None]:
        before = server.query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tidegauge_%'")
        yield
        assert server.query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tidegauge_%'") == before

    @pytest.mark.parametrize("tidegauge_store", ["postgresql"], indirect=True)
    def test_a_flow_runs_there(self, gone: None, tidegauge_store: str, tmp_path: Path) -> None:
        flow = tg.Dataflow("shop", store=tidegauge_store)
        rows = flow.source("rows", tg.GeneratorSource(3, columns="id long"))
        flow.sink("rows", rows, tg.ParquetSink(f"{tmp_path}/lake"))
        assert flow.run(until="caught-up", engine=tg.LocalEngine(threads=0)).published == 1


def test_a_clock_does_not_go_back() -> None:
    with pytest.raises(InvalidArgument, match="time goes on"):
        HandClock().advance(-1)
