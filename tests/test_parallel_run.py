"""How the tests themselves are run."""

from __future__ import annotations

import gzip
import os

import pytest


@pytest.mark.spark
def test_what_starts_a_spark_runs_in_one_process(request: pytest.FixtureRequest) -> None:
    """In a parallel run xdist puts the group's name behind a test's, or there is no group."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@spark")


@pytest.fixture(scope="module")
def of_this_module() -> None:
    return None


def test_those_that_share_a_fixture_of_their_module_run_in_one_process(
    of_this_module: None, request: pytest.FixtureRequest
) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@tests/test_parallel_run.py")


@pytest.mark.parametrize("packed", [gzip.compress(b"")])
def test_bytes_that_are_no_text_are_named_by_their_argument(packed: bytes, request: pytest.FixtureRequest) -> None:
    """Or each process names the test by the second in which the bytes were packed, and no test runs at all."""
    assert "[packed]" in request.node.name
