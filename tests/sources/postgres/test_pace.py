"""The rate at which first rows are read: a bound for all connections together, whoever reads them and when."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.postgres import Server
from tests.sources.postgres.shop import Shop
from tests.sources.postgres.test_refusals import connected, released

from tidegauge.errors.flow import InvalidArgument
from tidegauge.sources.postgres.pace import RowsPace


@given(rate=st.integers(1, 100_000), turns=st.lists(st.integers(0, 3), min_size=1, max_size=200))
def test_all_connections_together_read_no_more_than_the_rate(rate: int, turns: list[int]) -> None:
    now = 0.0
    pace = RowsPace(rate, lambda: now)
    ready = dict.fromkeys(range(4), 0.0)
    read = 0
    for reader in turns:
        now = max(now, ready[reader])
        read += pace.step
        assert read <= rate * now + len(ready) * pace.step + 1e-6 * read
        ready[reader] = now + pace.read(pace.step)


@pytest.fixture
def shop(logical: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A table of some ranges."""
    monkeypatch.setattr("tidegauge.sources.postgres.held.RANGE_BYTES", 4 * 8192)
    found = Shop(logical, tmp_path)
    found.table("orders", "id int PRIMARY KEY, who text")
    found.do("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(1, 1500) i")
    found.publish()
    return found


def test_first_rows_are_read_no_faster_than_the_rate(shop: Shop) -> None:
    began = time.monotonic()
    flow = shop.catch_up(rate=1000, connections=4)
    assert time.monotonic() - began >= 1500 / 1000 - 0.1
    assert shop.held(flow, "orders") == shop.there("orders")


def test_a_reading_that_waits_is_stopped_at_once_and_goes_on_at_another_rate(shop: Shop) -> None:
    subscription = connected(shop, rate=1)
    for _ in range(20):
        subscription.receive(1000, 0.05)
    subscription.close()
    released(shop)
    flow = shop.catch_up()
    assert shop.held(flow, "orders") == shop.there("orders")


@pytest.mark.parametrize("rate", [0, -1, 1.5, True, "fast"])
def test_a_rate_is_a_number_of_rows(shop: Shop, rate: object) -> None:
    with pytest.raises(InvalidArgument, match="rate"):
        shop.source(rate=rate)
