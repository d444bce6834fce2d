"""A table of Iceberg holds the laws of every sink."""

from __future__ import annotations

import pytest
from tests.sinks.iceberg.conftest import IcebergBench

from tidegauge.testing.kit import check_sink

UNTRIED = {
    "sweeping clears the litter of drivers that died",
    "a layout changes no rows",
}


@pytest.mark.parametrize("crashes", [pytest.param(60, marks=pytest.mark.long), 0])
def test_a_table_of_iceberg_holds_every_law(crashes: int) -> None:
    report = check_sink(IcebergBench, crashes=crashes, deadline=240)
    report.require()
    untried = {finding.name for finding in report.findings if finding.untried}
    assert untried == UNTRIED | (set() if crashes else {"a crash leaves all or nothing"})
