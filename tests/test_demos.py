"""The demo of a late table holds what it shows: it checks itself, and ends with 1 where something is not so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.long
def test_a_table_that_is_added_to_the_year_of_flights_is_one_from_the_start(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "examples.flights.late"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    while_it_came = [line for line in lines if "flown: " in line and "live tables: " in line]
    for state in ("backfilling ", "paused ", "live"):
        assert any(f"flown: {state}" in line for line in while_it_came), done.stdout
    assert any("All of it holds." in line for line in lines), done.stdout
