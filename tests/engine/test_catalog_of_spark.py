"""Tables get their names in the catalog of a Spark session: Hive's, with Delta's own JAR. A name harms no row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kafka import missing
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.catalog import CatalogNameTaken, CatalogTrouble, NoCatalog
from tidegauge.errors.engine import JavaMissing
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.testing import JarsNotFetched
from tidegauge.testing.jars import DELTA, class_path

ROOT = Path(__file__).parents[2]


def flow_of(root: Path, name: str | None, *, folder: str = "orders", store: str = "shop") -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/{store}.db", tick=0.05)
    lines = flow.source("lines", tg.FileSource(f"{root}/in/*.jsonl", format=tg.Json("n long"), settle=0))
    flow.sink("orders", lines, tg.DeltaSink(f"{root}/my lake/{folder}", table=name))
    return flow


def write(root: Path, number: int) -> None:
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / f"{number}.jsonl").write_text(json.dumps({"n": number}) + "\n")


def test_an_engine_without_a_catalog_refuses_before_anything_is_written(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(NoCatalog, match=r"TG-0466.*shop\.orders.*'local'"):
        flow_of(tmp_path, "shop.orders").run(until="caught-up", engine="local")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("name", ["", ".", "a.b.c.d", "a..b", "a`b", "a.\n", 7, ["a"]])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidArgument, match="table"):
        tg.DeltaSink("/lake/orders", table=name)


def test_a_place_that_no_statement_can_quote_has_no_name() -> None:
    with pytest.raises(InvalidArgument, match="quote"):
        tg.DeltaSink("/lake/o'rders", table="orders")


@pytest.fixture(scope="module")
def jars() -> str:
    try:
        return class_path(DELTA)
    except (JarsNotFetched, JavaMissing) as error:
        missing(error)
        raise


@pytest.fixture
def program(jars: str, tmp_path: Path) -> list[str]:
    """The command that runs this module on a session of its own: the JAR has to be there before one starts."""
    return [sys.executable, "-m", "tests.engine.test_catalog_of_spark", jars, str(tmp_path)]


@pytest.mark.long
@pytest.mark.spark
def test_a_name_is_made_when_the_table_is_there_and_tried_again_while_it_cannot_be(program: list[str]) -> None:
    done = subprocess.run(
        program,
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]


def main(jars: str, root: Path) -> None:
    """Lead a life with names. Everything is asserted here."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars.replace(os.pathsep, ","))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", str(root / "warehouse"))
        .config("spark.hadoop.javax.jdo.option.ConnectionURL", f"jdbc:derby:{root}/metastore;create=true")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={root}")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .enableHiveSupport()
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        _live(session, root)
    finally:
        session.stop()


def _live(session: Any, root: Path) -> None:
    flow = flow_of(root, "shop.orders")

    write(root, 1)
    with pytest.raises(CatalogTrouble, match="SCHEMA_NOT_FOUND"):
        flow.run(until="caught-up", spark=session)
    assert tg.read_arrow(flow, "orders").num_rows == 1, "a name harms no row"

    session.sql("CREATE SCHEMA shop")
    assert flow.run(until="caught-up", spark=session).why == "caught up"
    assert session.table("shop.orders").count() == 1
    write(root, 2)
    flow.run(until="caught-up", spark=session)
    session.sql("REFRESH TABLE shop.orders")
    assert [row.n for row in session.sql("SELECT n FROM shop.orders ORDER BY n").collect()] == [1, 2]

    session.sql("CREATE TABLE shop.theirs (x INT) USING delta")
    other = flow_of(root, "shop.theirs", folder="others", store="other")
    with other.start(spark=session) as run:
        eventually(lambda: [o.state for o in run.status.outputs] == ["stalled"])
        [stalled] = run.status.outputs
        assert "TG-0467" in str(stalled.error), stalled
        assert run.status.published > 0
        session.sql("DROP TABLE shop.theirs")
        eventually(lambda: [o.state for o in run.status.outputs] == ["live"])
    assert session.table("shop.theirs").count() == 2

    session.sql("CREATE TABLE shop.third (x INT) USING delta")
    with pytest.raises(CatalogNameTaken):
        flow_of(root, "shop.third").run(until="caught-up", spark=session)
    assert session.table("shop.third").columns == ["x"], "nobody else's name is touched"
    assert flow_of(root, None).run(until="caught-up", spark=session).why == "caught up"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
