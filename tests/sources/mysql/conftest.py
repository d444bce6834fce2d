"""What the tests of this folder share."""

from __future__ import annotations

import pytest
from tests.mariadb import MariaDb


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> MariaDb:
    """A server of each kind."""
    found: MariaDb = request.getfixturevalue(request.param)
    return found
