"""`compact`: how far it went and why no further, who is in the way, and what is refused."""

from __future__ import annotations

import json
import os

from tests.cli.conftest import Ask, Shop

import tidegauge as tg
from tidegauge.env import Env
from tidegauge.remap.store import LeaseHolder, Store


def test_old_epochs_go_as_far_as_nobody_needs_them(shop: Shop, ask: Ask) -> None:
    for number in range(4):
        shop.write(number)
        shop.catch_up()
    tg.hold(shop.flow, "report", 2)
    done = ask("compact", "shop.py", "3")
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [
            "shop: epochs before 2 can no longer be told apart",
            "it was to go to epoch 3 and stopped before: 'report' holds epoch 2",
        ],
    )
    done = ask("compact", "shop.py", "2126-01-01", "--json")
    assert json.loads(done.stdout) == {"flow": "shop", "since": 2, "wanted": 3, "kept": "'report' holds epoch 2"}
    seen = ask("status", "shop.py").stdout
    assert "compacted: epochs before 2 can no longer be told apart" in seen
    assert "epoch 2 is held by report, since 20" in seen
    assert [(held["owner"], held["epoch"]) for held in json.loads(ask("status", "shop.py", "--json").stdout)["holds"]]
    done = ask("explain", "shop.py", "1")
    assert (done.exit_code, "TG-0203" in done.stderr) == (1, True)


def test_a_flow_that_runs_is_not_compacted_and_who_runs_it_is_said(shop: Shop, ask: Ask) -> None:
    shop.write(1)
    shop.catch_up()
    env = Env()
    store = Store.open(shop.flow.store, env=env)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    done = ask("compact", "shop.py", "0")
    assert (done.exit_code, "TG-0204" in done.stderr, f"process {os.getpid()}" in done.stderr) == (1, True, True)
    lease.release()
    store.close()
    assert "no epoch was let go" in ask("compact", "shop.py", "0").stdout


def test_what_is_no_epoch_and_no_time_is_refused(shop: Shop, ask: Ask) -> None:
    shop.write(1)
    done = ask("compact", "shop.py", "0")
    assert (done.exit_code, "TG-0605" in done.stderr) == (1, True)
    assert ask("compact", "shop.py", "-1").exit_code == 2
    shop.catch_up()
    done = ask("compact", "shop.py", "yesterday")
    assert (done.exit_code, "TG-0105" in done.stderr) == (1, True)
