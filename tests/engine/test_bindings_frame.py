"""The timeline as a DataFrame: the rows of the Arrow table, on the session that the caller has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.reclocked import flow_in

import tidegauge as tg

pytestmark = pytest.mark.spark


def test_bindings_as_a_frame_are_those_of_the_arrow_table(classic: Any, tmp_path: Path) -> None:
    flow = flow_in(tmp_path)
    frame, table = flow.bindings(spark=classic), flow.bindings()
    assert frame.schema.simpleString() == (
        "struct<source:string,incarnation:bigint,epoch:bigint,partition:string,position:bigint,lower:bigint,"
        "minted_at:timestamp,published_at:timestamp>"
    )
    found = frame.toArrow()
    assert table.num_rows == 6
    assert found.cast(table.schema).sort_by([("epoch", "ascending"), ("partition", "ascending")]).equals(table)


def test_a_stretch_without_bindings_is_a_frame_with_the_same_columns(classic: Any, tmp_path: Path) -> None:
    flow = flow_in(tmp_path)
    none = tg.bindings(flow, spark=classic, source="orders", first=7)
    assert none.schema == flow.bindings(spark=classic).schema
    assert none.collect() == []
