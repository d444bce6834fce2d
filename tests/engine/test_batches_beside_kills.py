"""Each row that a query writes is in every table once, on classic Spark and on Connect, whoever dies when."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.written import WAYS, written

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize(("kind", "kills"), [("classic", 3), ("connect", 2)])
def test_each_row_of_a_query_is_in_every_table_once_whatever_is_killed(kind: str, kills: int, tmp_path: Path) -> None:
    found = written(kind, tmp_path / "shop", kills=kills)
    assert not found.wrong, f"seed {found.seed}"
    assert found.batches == found.committed
    assert all(11 * kills <= len(found.committed[way]) <= 12 * kills for way in WAYS)
    assert found.queries == kills
    assert found.flows > 0
