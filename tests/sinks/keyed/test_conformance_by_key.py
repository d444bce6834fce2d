"""A table by key holds the laws of every sink, but for one.

What is written for one epoch takes the place of what was there: its files do not add up, epoch by epoch.
"""

from __future__ import annotations

import pytest
from tests.sinks.keyed.unique import UniqueBench

from tidegauge.testing.kit import check_sink


@pytest.mark.parametrize("crashes", [6, pytest.param(60, marks=pytest.mark.long)])
def test_a_table_by_key_holds_every_law(crashes: int) -> None:
    report = check_sink(lambda folder: UniqueBench(folder), crashes=crashes, deadline=240)
    assert {finding.name for finding in report.broken} == {"a table tells its files by epoch"}, str(report)
    untried = {finding.name for finding in report.findings if finding.untried}
    assert untried == {"files are taken out in whole or not at all"}
