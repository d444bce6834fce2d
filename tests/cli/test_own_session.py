"""`run` on the session that it makes itself: what is said when an expression fails, and what a signal to all does."""

from __future__ import annotations

import os
import signal

import pytest
from tests.cli.conftest import Shop

pytestmark = pytest.mark.spark

NUMBERS = """
from pathlib import Path

import tidegauge as tg

HERE = Path(__file__).parent
flow = tg.Dataflow("numbers", store=f"sqlite:///{HERE}/numbers.db", tick=0.05)
orders = flow.source("orders", tg.FileSource(str(HERE / "in" / "*.jsonl"), format=tg.Json("id long, user string")))
flow.sink("users", orders.select("user"), tg.DeltaSink(str(HERE / "lake" / "users")))
flow.sink("numbers", orders.select("CAST(user AS INT) AS n"), tg.DeltaSink(str(HERE / "lake" / "numbers")))
"""


def test_an_expression_that_fails_is_told_in_our_words_and_in_spark_s_with_debug(shop: Shop) -> None:
    shop.write(1, 2)
    (shop.root / "casts.py").write_text(NUMBERS, encoding="utf-8")
    command = ("run", "casts.py", "--until", "caught-up", "--spark", "local[1]")
    done = shop(*command)
    assert done.code == 1
    lines = [line[9:] if line[2:3] == ":" else line for line in done.err.splitlines()]  # without the time
    known = ("source orders: ", "output users: ", "output numbers: ", "published epoch 0: ", "TG-0506: ", "  ")
    java = "WARNING: Using incubator modules: jdk.incubator.vector"
    assert [line for line in lines if not line.startswith(known) and line != java] == []
    assert [line[:8] for line in lines[-3:]] == ["TG-0506:", "  likely", "  what t"]

    debug = shop(*command, "--debug")
    assert debug.code == 1
    assert "NumberFormatException: [CAST_INVALID_INPUT] The value 'u1'" in debug.err
    assert "The above exception was the direct cause of the following exception" in debug.err


def test_a_signal_to_the_whole_process_group_finishes_the_epoch_under_way(shop: Shop) -> None:
    shop.write(1)
    shop.hold()
    run = shop.start("run", "shop.py", "--spark", "local[1]")
    run.until(shop.held, "an epoch under way")
    os.killpg(run.process.pid, signal.SIGTERM)
    run.says("stopping after the epoch under way; once more to stop at once\n")
    shop.write(2)
    shop.release()
    assert run.ended() == 0
    assert run.err().endswith("shop: stopped; epoch 0 is the last published\n")
    assert shop.rows("orders") == shop.rows("slow") == [(1, 0)]
