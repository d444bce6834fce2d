"""Flows that share a source, on Spark: SQL steps of both over the same epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flow.shared import contents

import tidegauge as tg
from tidegauge.engine import LocalEngine, SparkEngine

pytestmark = [pytest.mark.spark]


def test_a_follower_on_spark_has_what_its_owner_has(tmp_path: Path, spark: SparkEngine) -> None:
    store = f"sqlite:///{tmp_path}/flow.db"
    shop, billing = (tg.Dataflow(name, store=store, tick=0.1) for name in ("shop", "billing"))
    source = tg.FileSource(f"{tmp_path}/in/*.csv", format=tg.Csv("n long, text string"), settle=0, metadata=True)
    orders = shop.source("orders", source)
    numbers = shop.source("numbers", tg.GeneratorSource(rows=90, columns="n long", max_records_per_epoch=30))
    own = {"orders": orders, "numbers": numbers}
    theirs = {name: billing.source(name, tg.shared(stream)) for name, stream in own.items()}
    for flow, streams in ((shop, own), (billing, theirs)):
        lake = f"{tmp_path}/{flow.name}"
        doubled = streams["orders"].filter("n % 2 = 0").select("n * 2 AS twice", "upper(text) AS text", "_offset")
        flow.sink("doubled", doubled, tg.DeltaSink(f"{lake}/doubled"))
        loud = streams["orders"].transform(lambda df: df.withColumn("loud", df["n"] * 10))
        flow.sink("loud", loud, tg.DeltaSink(f"{lake}/loud"))
        flow.sink("numbers", streams["numbers"], tg.ParquetSink(f"{lake}/numbers"))
    (tmp_path / "in").mkdir()
    for file in range(3):
        lines = (f"{n},text {n % 5}\n" for n in range(file * 10, file * 10 + 10))
        (tmp_path / "in" / f"{file}.csv").write_text("".join(["n,text\n", *lines]))
        shop.run("caught-up", engine=spark)
    billing.run("caught-up", engine=spark)
    for output in shop.outputs:
        assert contents(shop, output) == contents(billing, output), output
    assert tg.read_arrow(billing, "doubled").num_rows == 15
    assert tg.read_arrow(billing, "numbers").num_rows == 90


def test_one_flow_on_spark_and_the_other_without_agree(tmp_path: Path, spark: SparkEngine) -> None:
    store = f"sqlite:///{tmp_path}/flow.db"
    shop, billing = (tg.Dataflow(name, store=store, tick=0.1) for name in ("shop", "billing"))
    own = shop.source("rows", tg.GeneratorSource(rows=100, columns="n long", shards=3, max_records_per_epoch=20))
    for flow, stream in ((shop, own), (billing, billing.source("rows", tg.shared(own)))):
        flow.sink("rows", stream.filter("n > 5"), tg.ParquetSink(f"{tmp_path}/{flow.name}"))
    shop.run("caught-up", engine=spark)
    billing.run("caught-up", engine=LocalEngine(threads=1))
    assert contents(shop, "rows") == contents(billing, "rows") != []
