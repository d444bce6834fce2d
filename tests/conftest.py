"""What all tests share: those that start a Spark run one after another, in one process, so that sessions are shared.

No property is judged by how long an example takes: machines differ, and tests run beside each other.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from tests.postgres import postgres as postgres

settings.register_profile("tidegauge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidegauge")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test that starts a Spark into one group of the parallel run, before that looks at the groups."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
