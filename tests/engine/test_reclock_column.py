"""Data that is in a lake already gets the epochs that the flow gave to the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.elsewhere import Found
from tests.engine.reclocked import epochs_by_spark, flow_in

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument, ReservedColumn, UnknownColumn, UnknownName

pytestmark = pytest.mark.spark


def as_the_flow_did(found: dict[int, Any]) -> bool:
    given = [epochs[0] for id_, epochs in sorted(found.items())]
    return (
        sorted(found) == [-1, *range(1, 12)]
        and given == [None, *(i // 4 for i in range(1, 12))]
        and all(flow == spark for flow, spark in found.values())
    )


def test_rows_on_a_classic_session_get_the_epochs_that_the_flow_gave_them(classic: Any, tmp_path: Path) -> None:
    assert as_the_flow_did(epochs_by_spark(classic, flow_in(tmp_path)))


@pytest.mark.long
def test_rows_on_other_kinds_of_spark_get_them_too(connect: Found, cluster: Found) -> None:
    assert as_the_flow_did(dict(connect.reclocked))
    assert as_the_flow_did(dict(cluster.reclocked))


def test_frames_that_cannot_be_reclocked_are_refused_before_a_job(classic: Any, tmp_path: Path) -> None:
    flow = flow_in(tmp_path)
    frame = classic.createDataFrame([], "_partition string, _offset long, amount double")
    with pytest.raises(UnknownName):
        tg.reclock_column(frame, flow, "order")
    with pytest.raises(UnknownColumn):
        tg.reclock_column(frame, flow, "orders", partition="topic")
    with pytest.raises(ReservedColumn):
        tg.reclock_column(frame.selectExpr("*", "1 AS _Epoch"), flow, "orders")
    with pytest.raises(InvalidArgument):
        tg.reclock_column(frame, flow, "orders", position="amount")
