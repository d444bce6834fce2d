"""How much of its log the server keeps for a flow is in `status`, and how much it would keep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from tests.postgres import LOGICAL, Server, binaries, missing
from tests.sources.postgres.shop import Shop
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.cli.standing import status_json, status_view
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.postgressource import SlotLost
from tidegauge.looking.reports import FlowReport
from tidegauge.remap.fromtime.lsn import Lsn


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    settings = {**LOGICAL, "max_slot_wal_keep_size": "20MB", "max_wal_size": "32MB"}
    server = Server(binaries() or missing(os.environ), settings=settings)
    try:
        found = Shop(server, tmp_path)
        found.table("orders", "id int PRIMARY KEY, who text")
        found.publish()
        yield found
    finally:
        server.stop()


def said(report: FlowReport) -> str:
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - it lives as long
    console.print(status_view(report))
    return console.export_text()


def grown(shop: Shop, megabytes: int) -> None:
    shop.ask("SELECT pg_switch_wal()")
    for _ in range(megabytes):
        shop.do("SELECT pg_logical_emit_message(false, 'other', repeat('x', 1000000))")


def test_status_says_how_much_log_the_server_keeps_and_how_much_it_would(shop: Shop) -> None:
    assert tg.status(shop.catch_up()).sources[0].held_back is not None
    grown(shop, 5)
    report = tg.status(shop.flow())
    [source] = report.sources
    assert source.held_back is not None
    assert 5_000_000 < source.held_back < 40_000_000
    assert (source.held_back_limit, source.ending) == (20 << 20, False)
    assert status_json(report)["sources"][0]["held_back"] == source.held_back
    assert " MB of its log for this flow, of 21.0 MB at most" in said(report)
    grown(shop, 30)
    shop.server.query("CHECKPOINT")
    report = tg.status(shop.flow())
    assert report.sources[0].ending or report.sources[0].held_back is None  # the server decides how soon


def test_a_slot_that_was_lost_keeps_nothing_and_the_loss_is_named(shop: Shop) -> None:
    flow = shop.catch_up()
    grown(shop, 60)
    for _ in range(2):
        shop.server.query("CHECKPOINT")
    assert shop.ask("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
    assert tg.status(flow).sources[0].held_back is None
    with pytest.raises(SlotLost, match="removed log"):
        shop.catch_up()
    assert "keeps" not in said(tg.status(flow))


def test_a_server_that_is_away_is_no_trouble_to_status(shop: Shop) -> None:
    flow = shop.catch_up()
    shop.server.stop(stay=True)
    report = tg.status(flow)
    assert report.sources[0].held_back is None
    assert "how much upstream keeps for the flow is not known: TG-0360" in report.sources[0].note
    shop.server.start()
    assert tg.status(flow).sources[0].note.endswith("its running flow knows")


def test_t54_another_database_of_the_server_that_is_busy_does_not_make_it_keep_more(
    logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.sources.postgres.subscription._IDLE", 0.2)
    shop, other = Shop(logical, tmp_path), Shop(logical, tmp_path / "other")
    shop.table("orders", "id int PRIMARY KEY")
    shop.publish()
    begun = Lsn.parse(shop.ask("SELECT pg_current_wal_lsn()::text")[0][0])
    kept: list[int] = []

    def let_go() -> bool:
        other.do("SELECT pg_logical_emit_message(true, 'other', repeat('x', 100000))")
        logical.query("CHECKPOINT")  # it writes which transactions are open, as the server does every 15 seconds
        kept.append(tg.status(flow).sources[0].held_back or 0)
        return Lsn.parse(shop.confirmed()).value > begun.value + 2_000_000 and kept[-1] < 1_000_000

    with shop.flow().start(engine=tg.LocalEngine(threads=2)) as run:
        flow = run.flow
        eventually(lambda: tg.status(flow).upper > 0)
        eventually(let_go)


def test_a_flow_that_has_failed_says_it_too(shop: Shop) -> None:
    shop.catch_up()
    shop.do("TRUNCATE orders")
    with pytest.raises(TidegaugeError):
        shop.catch_up()
    assert tg.status(shop.flow()).sources[0].held_back is not None
