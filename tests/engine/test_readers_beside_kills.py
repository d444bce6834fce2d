"""Whoever reads "as of" an epoch, on classic Spark or over Connect, sees it whole, however drivers die meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine import clusters
from tests.engine.besides import KILLS, beside

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_a_read_as_of_an_epoch_shows_that_epoch_whatever_drivers_do(kind: str, tmp_path: Path) -> None:
    if kind == "classic":
        found = beside("local[1]", tmp_path / "shop")
    else:
        with clusters.connect_server(tmp_path / "server", master="local[1]") as url:
            found = beside(url, tmp_path / "shop")
    assert found.kills == KILLS
    assert not found.wrong, f"seed {found.seed}"
    assert sum(found.reads.values()) >= KILLS, found.reads
    assert all(found.final.values())
