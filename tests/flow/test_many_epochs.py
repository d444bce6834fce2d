"""Ten thousand epochs in one table, each a commit of its own, while somebody reads it."""

from __future__ import annotations

from concurrent.futures import TimeoutError as StillRunning
from pathlib import Path

import pytest

import tidegauge as tg

EPOCHS = 10_000


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_thousand_epochs_are_ten_thousand_commits_and_a_reader_sees_each_prefix(tmp_path: Path) -> None:
    flow = tg.Dataflow("many", store=f"sqlite:///{tmp_path}/many.db", tick=0.001)
    numbers = flow.source("numbers", tg.GeneratorSource(EPOCHS, columns="n long", max_records_per_epoch=1))
    flow.sink("numbers", numbers, tg.DeltaSink(str(tmp_path / "numbers")))
    seen: list[int] = []
    with flow.start("caught-up", engine=tg.LocalEngine(threads=1)) as run:
        while True:
            try:
                run.wait(2.0)
            except StillRunning:
                epochs = tg.read_arrow(flow, "numbers").column("_epoch").to_pylist()
                assert sorted(epochs) == list(range(len(epochs)))
                seen.append(len(epochs))
            else:
                break
    rows = tg.read_arrow(flow, "numbers")
    assert sorted(rows.column("_epoch").to_pylist()) == list(range(EPOCHS))
    assert len(set(rows.column("n").to_pylist())) == EPOCHS
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert tg.status(flow).sources[0].lag == 0
