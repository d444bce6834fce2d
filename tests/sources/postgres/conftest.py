"""What the tests of this folder share: the slots that a test leaves on the shared server are dropped after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest


@pytest.fixture(autouse=True)
def _no_slot_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Slots that nobody reads hold back the server's log, and there is room for so many."""
    server = request.getfixturevalue("logical") if "logical" in request.fixturenames else None
    yield
    if server is not None:
        with suppress(psycopg.Error):  # one is taken, or goes by itself, at this moment
            server.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
