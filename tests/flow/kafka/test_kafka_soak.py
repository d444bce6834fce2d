"""A minute of the soak that `make soak` plays for ten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.flow.kafka.driving import Drivers
from tests.flow.kafka.soak import soak

from tidegauge.testing import KafkaBroker


@pytest.mark.long
def test_every_record_is_in_three_tables_once_whoever_is_killed(tmp_path: Path, own_broker: KafkaBroker) -> None:
    seed = int(os.environ.get("TIDEGAUGE_SEED") or int.from_bytes(os.urandom(4)))
    print(f"TIDEGAUGE_SEED={seed}")
    root = tmp_path / "flow"
    root.mkdir()
    with Drivers(tmp_path / "drivers.log") as drivers:
        soaked = soak(own_broker, drivers, root, seconds=45, rate=50, seed=seed)
    print(soaked)
    assert soaked.records == soaked.produced == soaked.acknowledged
    assert soaked.drivers > 5
    assert soaked.brokers > 1
