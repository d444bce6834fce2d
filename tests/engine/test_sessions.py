"""The session that the engine makes when it is given none, and Java that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.clusters import ROOT

from tidegauge.engine.spark.session import check_java
from tidegauge.errors.engine import JavaMissing


def first_line(environ: dict[str, str]) -> str:
    with pytest.raises(JavaMissing) as caught:
        check_java(environ)
    return str(caught.value).splitlines()[0]


def test_the_first_line_says_that_java_is_missing_and_how_to_install_it(tmp_path: Path) -> None:
    assert "no Java on the PATH" in first_line({"PATH": str(tmp_path)})
    assert "apt-get install openjdk-17" in first_line({"PATH": str(tmp_path)})
    assert str(tmp_path) in first_line({"JAVA_HOME": str(tmp_path)})


def fake_java(folder: Path, script: str) -> dict[str, str]:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


def test_the_first_line_says_that_java_is_too_old(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "echo 'java version \"1.8.0_402\"' >&2")
    assert "is version 8, which is too old; Spark needs Java 17 or newer" in first_line(old)


def test_a_java_that_is_no_java_is_said_so(tmp_path: Path) -> None:
    assert "does not say its version" in first_line(fake_java(tmp_path, "exit 3"))


def test_a_java_that_is_new_enough_passes(tmp_path: Path) -> None:
    check_java(fake_java(tmp_path, "echo 'openjdk version \"21\" 2023-09-19' >&2"))


OWN_SESSION = """
import os, sys
os.environ.pop("PYSPARK_PYTHON", None)
from tidegauge.engine import SparkEngine
assert not [name for name in sys.modules if name.startswith("pyspark")], "Spark is loaded before it is used"
engine = SparkEngine(master="local[2]")
session = engine.session
assert engine.parallelism == 2
assert session.conf.get("spark.sql.session.timeZone") == "UTC"
assert session.conf.get("spark.sql.adaptive.enabled") == "false"
assert os.environ["PYSPARK_PYTHON"] == sys.executable
assert SparkEngine().session is session, "an active session is used"
engine.close()
from pyspark.sql import SparkSession
assert SparkSession.getActiveSession() is None
"""


@pytest.mark.spark
@pytest.mark.long
def test_without_a_session_one_is_made_at_the_first_need_and_stopped() -> None:
    done = subprocess.run([sys.executable, "-c", OWN_SESSION], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


PROGRAM = """
import prices
import tidegauge as tg

flow = tg.Dataflow("shop", store="sqlite:///shop.db")
orders = flow.source("orders", tg.GeneratorSource(rows=20, columns="id long"))
flow.sink("orders", orders.map_batches(prices.priced, schema="id long, price long"), tg.ParquetSink("orders"))
flow.run("caught-up", engine="spark")
print(sorted({row["price"] for row in tg.read_arrow(flow, "orders").to_pylist()}))
"""
PRICES = """
import pyarrow as pa

def priced(batch):
    price = int(open("price.txt").read())
    return batch.append_column("price", pa.array([price] * batch.num_rows, pa.int64()))
"""


@pytest.mark.spark
@pytest.mark.long
def test_the_session_that_is_made_works_where_the_program_does_and_leaves_nothing_there(tmp_path: Path) -> None:
    """Its tasks find modules and files as those of a session of PySpark's own do."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "prices.py").write_text(PRICES)
    (tmp_path / "price.txt").write_text("7")
    done = subprocess.run(
        [sys.executable, "-B", "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=bare()
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "[7]\n"
    left = {path.name for path in tmp_path.iterdir()} - {"shop.db-wal", "shop.db-shm", "__pycache__"}
    assert left == {"shop.py", "prices.py", "price.txt", "shop.db", "orders"}


def bare() -> dict[str, str]:
    """The environment without what tells Python where to look."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
