"""A store goes back to a backup, and a driver runs before anybody recovers it: nothing is lost or doubled unsaid."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from tests.maintenance.rolledback import Shop

import tidegauge as tg
from tidegauge.errors.history import TablesDisagree
from tidegauge.errors.sinks import TableWentBack


@pytest.mark.parametrize(("ahead", "other"), [("delta", "parquet"), ("parquet", "delta")])
def test_where_the_table_that_was_ahead_is_away_the_others_go_on_and_a_repair_makes_all_of_one_history(
    ahead: str, other: str, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, {"ahead": ahead, "other": other})
    shop.run(0, 1)
    backup = shop.copy()
    shop.run(2, 3, only=("ahead",))
    away = (tmp_path / "lake" / "ahead").rename(tmp_path / "away")
    shop.put_back(backup)
    shop.write(4)
    with pytest.raises(TableWentBack):
        shop.again()
    held = {output.name: output.upper for output in tg.status(shop.flow()).outputs}
    assert held["other"] > 2, "nobody could know that the store is older than a table that is away"
    before = [(record.epoch, dict(sizes)) for record, sizes in tg.epochs(shop.flow())]

    away.rename(tmp_path / "lake" / "ahead")
    shop.write(5, 6)
    for _ in range(2):
        with pytest.raises(tg.TidegaugeError) as caught:
            shop.again()
        assert caught.value.code in ("TG-0240", "TG-0241")
    with pytest.raises(TablesDisagree) as disagree:
        tg.recover(shop.flow())
    assert "tidegauge repair" in disagree.value.next_step
    assert [(record.epoch, dict(sizes)) for record, sizes in tg.epochs(shop.flow())] == before

    tg.repair(shop.flow(), "ahead", from_epoch=2, engine=tg.LocalEngine(threads=0))
    shop.again()
    assert shop.rows("ahead") == shop.rows("other") == Counter(range(7))
    assert tg.verify(shop.flow()).problems == ()


def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A step that raises at the number 1."""
    if 1 in batch.column("id").to_pylist():
        raise ValueError("1")
    return batch


def test_an_epoch_that_was_published_and_is_in_no_table_is_bound_anew_which_is_said(tmp_path: Path) -> None:
    shop = Shop(tmp_path)

    def flow() -> tg.Dataflow:
        made = tg.Dataflow("shop", store=shop.store, tick=0.01)
        orders = made.source("orders", tg.FileSource(f"{tmp_path}/in/*.jsonl", format=tg.Json("id long")))
        made.sink("orders", orders.map_batches(refuse), tg.ParquetSink(f"{tmp_path}/lake/orders"))
        quiet = made.source("quiet", tg.FileSource(f"{tmp_path}/quiet.jsonl", format=tg.Json("id long")))
        made.sink("quiet", quiet, tg.ParquetSink(f"{tmp_path}/lake/quiet"))
        return made

    def run(*numbers: int) -> None:
        with (tmp_path / "quiet.jsonl").open("a") as quiet:
            quiet.writelines(f'{{"id": {number}}}\n' for number in numbers)
        flow().run("caught-up", engine=tg.LocalEngine(threads=0))

    shop.write(0)
    run(100)
    backup = shop.copy()
    run(101)
    shop.write(1)
    with pytest.raises(tg.TidegaugeError):
        run()
    assert tg.status(flow()).published == 3
    assert tg.read_arrow(flow(), "quiet", as_of=2).num_rows == 2
    shop.put_back(backup)
    done = tg.recover(flow())
    assert done.upper == 2
    assert any("from epoch 2 on" in said and "published" in said for said in done.lacking)
    with pytest.raises(tg.TidegaugeError):
        run(102)
    assert tg.read_arrow(flow(), "quiet", as_of=2).num_rows == 3, "the epoch has another content than it had"
