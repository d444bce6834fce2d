"""`format("tidegauge")` on a session of Spark's, as a table and as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.looking.test_subscriptions import Shop

import tidegauge as tg

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, kinds="parted newest")
    for name in ("ada", "bob", "eve"):
        shop.run((1, name), (2, name))
    return shop


def loaded(reader: Any, shop: Shop, output: str, **options: Any) -> Any:
    named = {"store": f"sqlite:///{shop.root}/shop.db", "flow": "shop", "output": output}
    return reader.format("tidegauge").options(**named, **options).load()


def finished(writer: Any) -> Any:
    """Run a query to its end; again where Spark did not wait for its Python process, as on a busy machine."""
    while True:
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "connect back" not in str(error):
                raise
        else:
            return query


def ends(query: Any) -> list[int]:
    """Where the batches of a query ended."""
    return [
        int(progress.sources[0].endOffset.split('"epoch": ')[1].split(",")[0]) for progress in query.recentProgress
    ]


def test_a_session_reads_a_table_as_of_an_epoch_and_follows_its_epochs(shop: Shop, classic: Any) -> None:
    tg.register(classic)
    frame = loaded(classic.read, shop, "parted", asOf=1)
    expected = tg.read(classic, shop.flow, "parted", as_of=1)
    assert frame.schema == expected.schema
    assert sorted(frame.collect()) == sorted(expected.collect())
    stream = loaded(classic.readStream, shop, "parted", maxEpochsPerTrigger=2)
    query = finished(stream.writeStream.format("memory").queryName("followed"))
    assert ends(query) == [2, 3]
    assert sorted(classic.table("followed").collect()) == sorted(tg.read(classic, shop.flow, "parted").collect())


@pytest.mark.long
def test_a_query_goes_on_from_its_checkpoint(shop: Shop, classic: Any, tmp_path: Path) -> None:
    tg.register(classic)

    def copy() -> list[int]:
        stream = loaded(classic.readStream, shop, "newest", changes="true", maxEpochsPerTrigger=1)
        writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
        return ends(finished(writer.option("path", f"{tmp_path}/copy")))

    assert copy() == [3]  # the rows of all keys at once
    shop.run((1, None))
    shop.run((3, "zoe"))
    assert copy() == [4, 5]
    copied = classic.read.parquet(f"{tmp_path}/copy").groupBy("id", "name").sum("_diff").collect()
    assert {tuple(row)[:2] for row in copied if row[2]} == {(2, "eve"), (3, "zoe")}


@pytest.mark.long
def test_what_is_wrong_has_its_name_when_it_is_loaded_or_started(shop: Shop, classic: Any) -> None:
    tg.register(classic)
    wrong: list[tuple[str, dict[str, Any]]] = [("TG-0606", {"asOf": 9}), ("TG-0660", {"path": "/lake"})]
    for code, options in wrong:
        with pytest.raises(PySparkException, match=code):
            loaded(classic.read, shop, "parted", **options)
    with pytest.raises(PySparkException, match="TG-0665"):
        finished(loaded(classic.readStream, shop, "newest").writeStream.format("memory").queryName("refused"))
