"""A store and its tables prove that they belong together, or nothing is begun: whatever happened to the store."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.maintenance.rolledback import Shop
from tests.remap.store.raw import dump

import tidegauge as tg
from tidegauge.errors.history import HistoriesDiffer, StoreBehindTable


def skip(flow: tg.Dataflow) -> object:
    last = tg.bindings(flow).to_pylist()[-1]
    return tg.skip(flow, "orders", last["partition"], last["lower"], last["position"])


@pytest.fixture(params=["delta", "parquet"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(tmp_path, {"orders": request.param})


def test_a_store_from_a_backup_is_refused_with_both_uppers_before_anything_is_bound(shop: Shop) -> None:
    shop.run(0, 1)
    backup = shop.copy()
    shop.run(2, 3, 4)
    shop.put_back(backup)
    shop.write(5)
    with pytest.raises(StoreBehindTable) as caught:
        shop.again()
    assert [caught.value.evidence[name] for name in ("output", "store", "table", "parted")] == ["orders", 2, 5, 2]
    assert "tidegauge recover" in caught.value.next_step
    assert [record.epoch for record, _ in tg.epochs(shop.flow())] == [0, 1]
    [output] = tg.status(shop.flow()).outputs
    assert isinstance(output.error, StoreBehindTable)
    assert (output.state, output.lag > 0) == ("failed", True)
    with pytest.raises(StoreBehindTable):  # what it calls epoch 1 may be anything
        tg.read_arrow(shop.flow(), "orders", as_of=1)


def test_a_store_that_was_put_back_by_hand_is_refused(shop: Shop) -> None:
    shop.run(0, 1, 2)
    with closing(sqlite3.connect(shop.file)) as store, store:
        store.execute("DELETE FROM changes WHERE epoch = 2")
        store.execute("DELETE FROM timeline WHERE epoch = 2")
        store.execute("UPDATE flows SET upper = 2, published = 2")
    with pytest.raises(StoreBehindTable):
        shop.again()


def test_a_store_that_was_put_back_and_has_caught_up_with_other_data_is_refused(shop: Shop) -> None:
    shop.run(0, 1)
    backup = shop.copy()
    shop.run(2, 3)
    shop.put_back(backup)
    shop.outputs = {
        "elsewhere": "parquet"
    }  # somebody runs a part of the flow, and so the other table is not looked at
    shop.write(4, 5)
    shop.run(6, 7)
    shop.outputs = {"orders": shop.outputs.get("orders", "parquet"), **shop.outputs}
    shop.outputs["orders"] = "delta" if (shop.root / "lake" / "orders" / "_delta_log").exists() else "parquet"
    with pytest.raises(HistoriesDiffer) as caught:
        shop.again()
    assert [caught.value.evidence[name] for name in ("store", "table", "parted")] == [4, 4, 2]
    report = {output.name: output for output in tg.status(shop.flow()).outputs}
    assert isinstance(report["orders"].error, HistoriesDiffer)
    assert report["elsewhere"].state == "live"


@pytest.mark.parametrize("change", [partial(tg.compact, before=1), partial(tg.resume, source="orders"), skip])
def test_a_store_from_a_backup_is_not_changed_by_hand_either(
    change: Callable[[tg.Dataflow], object], shop: Shop
) -> None:
    shop.run(0, 1, 2)
    backup = shop.copy()
    shop.run(3)
    shop.put_back(backup)
    before = dump(shop.store)
    with pytest.raises(StoreBehindTable):
        change(shop.flow())
    assert dump(shop.store)["losses"] == before["losses"]
    assert dump(shop.store)["flows"] == before["flows"]


def test_a_store_that_is_its_own_is_never_refused(shop: Shop) -> None:
    shop.run(0, 1)
    backup = shop.copy()
    shop.put_back(backup)  # nothing was run since
    shop.run(2)
    tg.compact(shop.flow(), before=2)
    shop.run(3, 4)
    assert shop.rows() == Counter(range(5))
    assert tg.status(shop.flow()).outputs[0].state == "live"
