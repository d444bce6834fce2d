"""A run until caught up ends when what was upstream when it began is in the tables, however fast more comes."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tidegauge as tg
from tidegauge.flow.board import Board


@pytest.mark.timeout(60)
def test_a_source_that_brings_more_than_its_epochs_take_does_not_keep_the_run_going(tmp_path: Path) -> None:
    start, seconds = datetime(2026, 11, 20, 17, tzinfo=UTC), itertools.count(5)
    env = tg.Env(now=lambda: start + timedelta(seconds=next(seconds)))  # whoever looks finds it a second later
    source = tg.GeneratorSource(None, columns="n long", rate=100, start=start, max_records_per_epoch=50)
    flow = tg.Dataflow("fast", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    flow.sink("rows", flow.source("rows", source), tg.ParquetSink(str(tmp_path / "rows")))
    upstream: list[int] = []

    def watch(board: Board) -> None:
        upstream.append(sum(board.sources["rows"].end.values()))

    outcome = flow.run("caught-up", engine="local", env=env, watch=watch)
    first = next(rows for rows in upstream if rows)
    rows = tg.read_arrow(flow, "rows").num_rows
    assert outcome.why == "caught up"
    assert 500 < first <= rows < upstream[-1], "it had what was there when it began, and not what came since"
    assert rows == 50 * outcome.published
