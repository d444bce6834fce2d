"""Pieces of pushed records in tasks of Spark: Arrow functions, row-wise SQL, DataFrames, and bad records."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tidegauge as tg
from tidegauge.sources.push.pieces import Pieces
from tidegauge.testing import LogServer

pytestmark = pytest.mark.spark

STREAMS = {"orders": "n long, name string", "users": "n long"}


def test_each_record_is_in_each_output_once(classic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.flow.pushing.Pieces", partial(Pieces, memory=10_000))
    with LogServer() as log:
        for n in range(2000):
            row = {"n": n, "name": f"row {n}"} if n % 2 == 0 else {"n": n}
            log.append(row, stream="users" if n % 2 else "orders", partition=f"p{n % 3}")
        log.write(b'{"n": "none"}', stream="users")
        flow = tg.Dataflow("pushed", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
        feed = flow.source("feed", tg.SocketSource(log.host, log.port, columns=STREAMS))
        orders, users = feed.stream("orders"), feed.stream("users")
        flow.sink("orders", orders, tg.DeltaSink(str(tmp_path / "orders")))
        flow.sink("sql", orders.select("n", "upper(name) AS name"), tg.ParquetSink(str(tmp_path / "sql")))
        flow.sink("sum", users.transform(summed), tg.ParquetSink(str(tmp_path / "sum")))
        flow.sink("users", users, tg.ParquetSink(str(tmp_path / "users")))
        flow.sink("bad", feed.errors, tg.ParquetSink(str(tmp_path / "bad")))
        flow.run(until="caught-up", spark=classic)
    found = {name: tg.read_arrow(flow, name) for name in flow.outputs}
    even, odd = list(range(0, 2000, 2)), list(range(1, 2000, 2))
    assert sorted(found["orders"]["n"].to_pylist()) == even
    assert sorted(found["sql"]["name"].to_pylist()) == sorted(f"ROW {n}" for n in even)
    assert sorted(found["users"]["n"].to_pylist()) == odd
    assert sum(found["sum"]["total"].to_pylist()) == sum(odd)
    assert len(found["bad"]) == 1


def summed(frame: Any) -> Any:
    return frame.groupBy("_epoch").agg({"n": "sum"}).selectExpr("`sum(n)` AS total", "_epoch")
