"""A query that copies an output has each of its rows once, on classic Spark and on Connect, whoever dies when."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.followed import OUTPUTS, followed

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize(("kind", "kills"), [("classic", 3), ("connect", 2)])
def test_a_query_copies_each_row_once_whatever_is_killed(kind: str, kills: int, tmp_path: Path) -> None:
    found = followed(kind, tmp_path / "shop", kills=kills)
    assert found.queries == kills
    for output in OUTPUTS:
        rows, missing, twice = found.rows[output]
        assert (missing, twice) == (0, 0), f"{output}: seed {found.seed}"
        assert rows > 300
