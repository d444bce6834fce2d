"""A late table has what was compacted as one epoch; a store from before the compaction does not tell it apart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.maintenance.rolledback import Shop

import tidegauge as tg
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.history import StoreBehindCompaction
from tidegauge.errors.store import EpochBelowSince

SINCE = 2


@pytest.fixture(params=["delta", "parquet"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """Four epochs; the late table is not there yet."""
    shop = Shop(tmp_path, {"orders": request.param})
    shop.run(0, 1, 2, 3)
    return shop


def compacted(shop: Shop, *numbers: int) -> None:
    """Compact, and let a late table come, while more epochs do."""
    assert tg.compact(shop.flow(), before=SINCE).since == SINCE
    shop.outputs["late"] = shop.outputs["orders"]
    shop.again()
    shop.run(*numbers)


def rows(shop: Shop, output: str, as_of: int) -> Counter[int]:
    return Counter(tg.read_arrow(shop.flow(), output, as_of=as_of).column("id").to_pylist())


def agree(shop: Shop, upper: int) -> None:
    """The tables agree as of every epoch that can be told apart, and as of no other anybody reads."""
    for epoch in range(SINCE, upper):
        assert rows(shop, "orders", epoch) == rows(shop, "late", epoch) == Counter(range(epoch + 1))
    for output in shop.outputs:
        with pytest.raises(EpochBelowSince):
            rows(shop, output, SINCE - 1)


@pytest.mark.parametrize("more", [(), (4, 5)])
def test_a_backup_from_before_the_compaction_gets_it_back(shop: Shop, more: tuple[int, ...]) -> None:
    backup = shop.copy()
    compacted(shop, *more)
    before = tg.bindings(shop.flow()).drop_columns(["published_at"])
    shop.put_back(backup)
    done = tg.recover(shop.flow())
    assert (done.since, done.changed, done.upper) == (SINCE, True, 4 + len(more))
    assert tg.bindings(shop.flow()).drop_columns(["published_at"]).equals(before)
    assert not tg.recover(shop.flow()).changed, "there is one history again"
    agree(shop, 4 + len(more))
    shop.run(6)
    assert shop.rows("late") == shop.rows("orders")
    assert tg.verify(shop.flow()).problems == ()


def test_without_a_backup_it_is_compacted_too(shop: Shop) -> None:
    compacted(shop, 4)
    shop.lose()
    assert tg.recover(shop.flow()).since == SINCE
    agree(shop, 5)


def test_a_backup_from_before_the_compaction_is_refused_until_it_is_recovered(shop: Shop) -> None:
    backup = shop.copy()
    compacted(shop)
    shop.put_back(backup)
    shop.write(4)
    with pytest.raises(StoreBehindCompaction):
        shop.again()
    with pytest.raises(StoreBehindCompaction):
        tg.compact(shop.flow(), before=1)
    with pytest.raises(StoreBehindCompaction):  # it would lose what was compacted
        tg.repair(shop.flow(), "late", from_epoch=SINCE, engine=tg.LocalEngine(threads=0))
    assert "TG-0247" in next(one for one in tg.verify(shop.flow()).problems)
    assert [type(one.error) for one in tg.status(shop.flow()).outputs] == [type(None), StoreBehindCompaction]
    tg.recover(shop.flow())
    shop.again()
    agree(shop, 5)


def test_a_table_that_follows_the_older_store_is_written_anew_from_the_start_only(shop: Shop) -> None:
    backup = shop.copy()
    compacted(shop)
    shop.put_back(backup)
    tg.repair(shop.flow(), "late", from_epoch=0, engine=tg.LocalEngine(threads=0))
    tg.recover(shop.flow())  # a log of Delta still tells what it was before
    shop.run(4)
    for epoch in range(SINCE, 5):
        assert rows(shop, "orders", epoch) == rows(shop, "late", epoch) == Counter(range(epoch + 1))


def test_a_hold_of_the_backup_that_was_released_since_does_not_come_back(shop: Shop) -> None:
    for owner, epoch in (("report", SINCE - 1), ("export", SINCE)):
        tg.hold(shop.flow(), owner, epoch)
    backup = shop.copy()
    tg.release(shop.flow(), "report")
    compacted(shop)
    shop.put_back(backup)
    done = tg.recover(shop.flow())
    assert done.since == SINCE
    assert any("'report'" in said for said in done.lacking)
    with pytest.raises(UnknownName):
        tg.release(shop.flow(), "report")
    tg.release(shop.flow(), "export")


def test_a_table_from_before_the_compaction_takes_nothing_from_the_store(shop: Shop) -> None:
    backup = shop.copy()
    tg.compact(shop.flow(), before=SINCE)
    shop.run(4, 5)
    shop.put_back(backup)
    assert tg.recover(shop.flow()).since == 0, "nothing is told of it, and every epoch can be told apart"
    assert rows(shop, "orders", 0) == Counter([0])
