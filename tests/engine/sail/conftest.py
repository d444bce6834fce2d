"""Sail is driven once for a module, whose tests are in one process of a parallel run."""

from __future__ import annotations

import pytest
from tests.engine.sail.sailing import Found, drive


@pytest.fixture(scope="module")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What is found on Sail."""
    return drive(tmp_path_factory.mktemp("sail"))
