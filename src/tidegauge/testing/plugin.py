"""The plugin of pytest: fixtures for tests of flows. Where Tidegauge is installed, pytest finds it by itself.

Invariant: it loads pytest alone. What a fixture needs is loaded, and started, for the first test that asks for it.

    tidegauge_store   the address of an empty store, of each test alone
    kafka_broker      the `Endpoint` of a broker for the whole test run, also of several processes
    local_spark       a Spark session in this process, for the whole test run
    virtual_time      a `HandClock`: its `env` is for `Dataflow.run(env=...)`

`@pytest.mark.parametrize("tidegauge_store", ["sqlite", "postgresql"], indirect=True)` runs a test on both. The server
is the one at `TIDEGAUGE_TEST_POSTGRES`; each store is a schema of its own there, which is dropped with the test.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest

from tidegauge.testing.fixtures import kafka_broker

if TYPE_CHECKING:
    from tidegauge.testing.hand_clock import HandClock

__all__ = ["kafka_broker", "local_spark", "tidegauge_store", "virtual_time"]

SERVER: Final = "TIDEGAUGE_TEST_POSTGRES"
"""The environment variable with the address of a PostgreSQL database for tests."""


@pytest.fixture
def tidegauge_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store for `Dataflow(store=...)`: a file in the folder of the test, or on PostgreSQL."""
    match getattr(request, "param", "sqlite"):
        case "sqlite":
            yield f"sqlite:///{tmp_path}/tidegauge.db"
        case "postgresql":
            yield from _schema(os.environ.get(SERVER, ""))
        case other:
            raise pytest.UsageError(f"tidegauge_store is 'sqlite' or 'postgresql', not {other!r}")


def _schema(server: str) -> Iterator[str]:
    """Yield the address of a schema on a server, and drop it."""
    if not server:
        pytest.skip(f"{SERVER} names no PostgreSQL database for tests, as in postgresql://user@host/database")
    import psycopg
    from psycopg.sql import SQL, Identifier

    name = f"tidegauge_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
        try:
            yield f"{server}{'&' if '?' in server else '?'}options={quote(f'-csearch_path={name}')}"
        finally:
            connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(name)))


@pytest.fixture(scope="session")
def local_spark() -> Iterator[Any]:
    """A Spark session on two threads of this process, as flows make one: the one that is there, or a new one."""
    from pyspark.sql import SparkSession

    from tidegauge.engine.spark.session import create_session

    found = SparkSession.getActiveSession()
    session = found or create_session("local[2]")
    try:
        yield session
    finally:
        if found is None:
            session.stop()


@pytest.fixture
def virtual_time() -> HandClock:
    """A clock that you move: pass its `env` to a run."""
    from tidegauge.testing.hand_clock import HandClock

    return HandClock()
