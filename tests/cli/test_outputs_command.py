"""`tidegauge outputs`: an output is paused and resumed while a driver runs in a process of its own, and later."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Shop
from tests.waiting import eventually

import tidegauge as tg

RUN = ("run", "shop.py", "--engine", "local")


def state(shop: Shop, output: str) -> str:
    return {one.name: one.state for one in tg.outputs(shop.flow)}[output]


def test_an_output_is_paused_and_resumed_under_a_driver_that_runs(shop: Shop) -> None:
    shop.write(1)
    run = shop.start(*RUN)
    run.says("published epoch 0")
    done = shop("outputs", "pause", "shop.py", "slow")
    assert done.code == 0
    assert "shop: output slow is paused (operator); its driver hears of it within seconds: " in done.out
    run.says("output slow: paused")
    shop.write(2)
    run.says("published epoch 1")
    assert [row[0] for row in shop.rows("orders")] == [1, 2]
    listed = shop("outputs", "list", "shop.py", "--json")
    [orders, slow] = json.loads(listed.out)
    assert (orders["state"], orders["upper"], orders["paused"]) == ("live", 2, [])
    assert (slow["state"], slow["upper"], [pause["reason"] for pause in slow["paused"]]) == (
        "paused",
        1,
        ["operator"],
    )
    shown = shop("status", "shop.py")
    assert "slow: paused (operator) since " in shown.out
    assert "upstream keeps what it lacks, from epoch 1 on" in shown.out
    assert "is not paused; its driver" in shop("outputs", "resume", "shop.py", "slow").out
    eventually(lambda: state(shop, "slow") == "live")
    run.interrupt()
    assert run.ended() == 0
    assert shop.rows("slow") == shop.rows("orders")


@pytest.mark.long
def test_a_driver_that_is_killed_finds_what_was_decided_meanwhile(shop: Shop) -> None:
    shop.write(1)
    run = shop.start(*RUN)
    run.says("published epoch 0")
    run.process.kill()
    run.process.wait()
    assert "the next run goes by it" in shop("outputs", "pause", "shop.py", "slow").out
    shop.write(2)
    shop.catch_up()
    assert (len(shop.rows("orders")), state(shop, "slow")) == (2, "paused")
    assert "as before" in shop("outputs", "pause", "shop.py", "slow").out
    assert shop("outputs", "resume", "shop.py", "slow", "--json").code == 0
    shop.catch_up()
    assert shop.rows("slow") == shop.rows("orders")


def test_an_output_that_is_none_is_refused_with_the_names_of_the_others(shop: Shop) -> None:
    shop.write(1)
    shop.catch_up()
    done = shop("outputs", "pause", "shop.py", "slwo")
    assert (done.code, "slow" in done.err) == (1, True)


def test_an_output_is_dropped_with_its_table_under_a_driver_that_goes_on(shop: Shop) -> None:
    shop.write(1)
    run = shop.start(*RUN)
    run.says("published epoch 0")
    done = shop("outputs", "drop", "shop.py", "slow", "--table")
    assert done.code == 0
    assert "shop: its driver drops output slow with its table, within seconds: " in done.out
    eventually(lambda: state(shop, "slow") == "planned")
    shop.write(2)
    run.says("published epoch 1")
    assert [row[0] for row in shop.rows("orders")] == [1, 2]
    run.interrupt()
    assert run.ended() == 0
    shop.catch_up()
    assert shop.rows("slow") == shop.rows("orders"), "it is in the flow still, and begins anew"
    assert (
        "is dropped, and its table stays; it is still in the flow" in shop("outputs", "drop", "shop.py", "slow").out
    )


def test_an_output_goes_on_with_other_code_once_somebody_says_so(shop: Shop) -> None:
    shop.write(1)
    shop.catch_up()
    file = shop.root / "shop.py"
    file.write_text(file.read_text().replace("orders.map_batches", "orders.filter('id > 1').map_batches"))
    shop.write(2)
    refused = shop(*RUN, "--until", "caught-up")
    assert (refused.code, "TG-0229" in refused.err, "step 1 (filter) is new" in refused.err) == (1, True, True)
    done = shop("outputs", "from-here", "shop.py", "slow")
    assert done.out.startswith("shop: output slow goes on with its present code, from epoch 1 on\n")
    assert "\n  step 1 (filter) is new\n" in done.out
    again = json.loads(shop("outputs", "from-here", "shop.py", "slow", "--json").out)
    assert again == {"flow": "shop", "output": "slow", "epoch": 1, "changes": []}
    assert shop(*RUN, "--until", "caught-up").code == 0
    assert "slow: its code changed at epoch 1" in shop("status", "shop.py").out
    [orders, slow] = json.loads(shop("outputs", "list", "shop.py", "--json").out)
    assert (orders["code_changed_at"], slow["code_changed_at"]) == ([], [1])


def test_an_output_that_was_added_to_the_file_is_taken_in_by_the_driver_that_runs(shop: Shop) -> None:
    shop.write(1)
    run = shop.start(*RUN)
    run.says("published epoch 0")
    file = shop.root / "shop.py"
    before = file.read_text()
    file.write_text(
        before + 'flow.sink("users", orders.select("id"), tg.ParquetSink(str(HERE / "lake" / "users")))\n'
    )
    done = shop("outputs", "add", "shop.py", "users")
    assert done.code == 0
    assert "shop: its driver takes output users in within seconds: " in done.out
    run.says("output users is new")
    eventually(lambda: state(shop, "users") == "live")
    assert json.loads(shop("outputs", "add", "shop.py", "users", "--json").out)["changed"] is False
    run.interrupt()
    assert run.ended() == 0
    assert len(shop.rows("users")) == len(shop.rows("orders")) == 1


def test_a_driver_goes_on_as_before_where_the_file_is_broken_or_has_changed_otherwise(shop: Shop) -> None:
    shop.write(1)
    run = shop.start(*RUN)
    run.says("published epoch 0")
    file = shop.root / "shop.py"
    more = 'flow.sink("users", orders.select("id"), tg.ParquetSink(str(HERE / "lake" / "users")))\n'
    file.write_text(file.read_text().replace("orders.map_batches(wait)", 'orders.filter("id > 0")') + more)
    assert shop("outputs", "add", "shop.py", "users").code == 0
    run.says("the newer flow for users is not taken: output 'slow' has other code in it; this run goes on as before")
    shop.write(2)
    run.says("published epoch 1")
    run.interrupt()
    assert run.ended() == 0
    assert not (shop.root / "lake" / "users").exists()
