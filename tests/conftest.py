"""What all tests share:

those that start a Spark run one after another, in one process, so that sessions are shared.
"""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test that starts a Spark into one group of the parallel run."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
