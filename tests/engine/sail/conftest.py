"""Sail is driven once for each test process."""

from __future__ import annotations

import pytest
from tests.engine.sail.sailing import Found, drive


@pytest.fixture(scope="session")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What is found on Sail."""
    return drive(tmp_path_factory.mktemp("sail"))
