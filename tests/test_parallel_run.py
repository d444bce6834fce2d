"""How the tests themselves are run."""

from __future__ import annotations

import os

import pytest


@pytest.mark.spark
def test_what_starts_a_spark_runs_in_one_process(request: pytest.FixtureRequest) -> None:
    """In a parallel run xdist puts the group's name behind a test's, or there is no group."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@spark")
