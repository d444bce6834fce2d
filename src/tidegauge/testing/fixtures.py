"""The broker as a pytest fixture: one for a test run, also when several processes run it (pytest-xdist).

Invariant: it is loaded and started for the first test that asks for it, and for none that does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidegauge.testing.endpoint import Endpoint

__all__ = ["kafka_broker", "place"]


def place(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all processes of this test run name."""
    base = factory.getbasetemp()
    return (base.parent if hasattr(config, "workerinput") else base) / "tidegauge-kafka"


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The broker of this test run, to be shared: nobody stops it, and each test has topics of its own."""
    from tidegauge.testing.shared import shared

    with shared(place(pytestconfig, tmp_path_factory)) as endpoint:
        yield endpoint
