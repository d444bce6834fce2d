"""A chaos on each store: every law of the simulated worlds holds for real processes, too (`make chaos` for more)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.run import Chaos
from tests.chaos.servers import a_broker
from tests.kafka import present
from tests.warm import Warm

from tidegauge.testing import KafkaBroker

SEEDS = 2
SECONDS = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """One broker for all: each chaos has a topic of its own, and starts what it has killed."""
    present()
    with a_broker() as started:
        yield started


@pytest.mark.long
@pytest.mark.xdist_group("chaos")  # one broker is enough
@pytest.mark.parametrize("number", range(SEEDS))
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_every_law_holds_whoever_is_killed_or_frozen(
    store: str, number: int, broker: KafkaBroker, warm: Warm, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = int(os.environ.get("TIDEGAUGE_SEED") or int.from_bytes(os.urandom(3))) + number
    server = request.getfixturevalue("postgres") if store == "postgresql" else None
    survived = Chaos(tmp_path, seed=seed, seconds=SECONDS, broker=broker, server=server, warm=warm).run()
    print(f"seed {seed}, {store}: {survived}")
    assert survived.rows > 0
