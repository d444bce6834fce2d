"""`run` says what it waits for, and ends when it is interrupted; `explain` takes a negative number for what it is."""

from __future__ import annotations

import re
from functools import partial

import pytest
from tests.cli.conftest import Shop, Under
from tests.disks import fill, make_room, small_disk

FAR = """
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent
flow = tg.Dataflow("far", store=f"sqlite:///{HERE}/far.db", tick=0.05)
orders = flow.source("orders", tg.FileSource(f"{HERE}/in/*.jsonl", format=tg.Json("id long, user string")))
far = flow.source("far", tg.FileSource(f"{HERE}/{'x' * 300}/*.jsonl", format=tg.Json("id long")))
flow.sink("orders", orders, tg.DeltaSink(f"{HERE}/lake/orders"))
flow.sink("far", far, tg.DeltaSink(f"{HERE}/lake/far"))
"""


def test_a_run_until_caught_up_says_that_it_waits_for_a_source_that_cannot_be_asked(shop: Shop) -> None:
    shop.write(1, 2)
    (shop.root / "far.py").write_text(FAR, encoding="utf-8")
    run = shop.start("run", "far.py", "--engine", "local", "--until", "caught-up")
    run.says("published epoch 0: orders 2 rows, far 0 rows")
    run.says("source far: stalled (source 'far' cannot be probed: OSError: ")
    run.says("not caught up: waiting for far, which cannot be asked\n")
    run.interrupt()
    assert run.ended() == 0
    assert run.err().count("not caught up") == 1
    assert run.err().endswith("far: stopped; epoch 0 is the last published\n")


def _said(run: Under, what: re.Pattern[str]) -> bool:
    return what.search(run.err()) is not None


def test_a_run_whose_store_is_full_says_so_and_ends_at_once_when_it_is_interrupted(shop: Shop) -> None:
    text = (shop.root / "shop.py").read_text()
    (shop.root / "shop.py").write_text(text.replace("/shop.db", "/small/shop.db"))
    shop.write(0)
    with small_disk(shop.root / "small", size="512k") as disk:
        run = shop.start("run", "shop.py", "--engine", "local")
        run.says("published epoch 0")
        fill(disk)
        count = 1
        while "store: stalled (the store" not in run.err():
            shop.write(count)
            run.until(partial(_said, run, re.compile(f"published epoch {count}|stalled")), "an epoch")
            count += 1
        run.says("has no room left: database or disk is full)")
        run.interrupt()
        assert run.ended() == 0
        assert "shop: stopped; epoch " in run.err()
        make_room(disk)
        shop.catch_up()
        assert [number for number, _ in shop.rows("orders")] == list(range(count))


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_negative_epoch_is_bad_usage(options: tuple[str, ...], open_shop: Shop) -> None:
    done = open_shop("explain", "shop.py", "-1", *options)
    assert done.code == 2
    assert done.out == ""
    assert "Invalid value for EPOCH: there is no epoch -1: they are counted from 0" in done.err


def test_an_unknown_option_is_still_one(open_shop: Shop) -> None:
    done = open_shop("explain", "shop.py", "1", "--jsno")
    assert done.code == 2
    assert "No such option: --jsno" in done.err
