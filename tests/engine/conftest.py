"""Engines for the tests of this folder. Sessions are started once for each test process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine import cases, clusters
from tests.engine.elsewhere import Found, drive

from tidegauge.engine import LocalEngine, SparkEngine


@pytest.fixture
def local() -> Iterator[LocalEngine]:
    engine = LocalEngine(threads=2)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def classic() -> Iterator[Any]:
    """A classic session as a user would bring it, in a zone that is not ours."""
    session = cases.session_at("local[2]")
    yield session
    session.stop()


@pytest.fixture
def spark(classic: Any) -> Iterator[SparkEngine]:
    engine = SparkEngine(classic)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What is found on a Connect server."""
    with clusters.connect_server(tmp_path_factory.mktemp("server")) as url:
        return drive(url, tmp_path_factory.mktemp("connect"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What is found on a standalone cluster with two workers."""
    with clusters.standalone(tmp_path_factory.mktemp("workers")) as url:
        return drive(url, tmp_path_factory.mktemp("cluster"))
