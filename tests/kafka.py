"""A real Kafka broker for the tests: one for the whole run, and one for a module that stops or kills it."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from tidegauge.errors.engine import JavaMissing
from tidegauge.errors.testing import JarsNotFetched
from tidegauge.testing import Endpoint, KafkaBroker
from tidegauge.testing.fixtures import place
from tidegauge.testing.jars import class_path
from tidegauge.testing.shared import shared


def missing(error: Exception) -> NoReturn:
    """Skip what needs a broker. Where nobody reads what is skipped it fails."""
    if os.environ.get("CI"):
        pytest.fail(str(error))
    pytest.skip(str(error))


def present() -> None:
    """Skip unless Kafka's programs are there or can be fetched."""
    try:
        class_path()
    except (JarsNotFetched, JavaMissing) as error:
        missing(error)


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The broker of this test run, to be shared: nobody stops it, and each test has topics of its own."""
    present()
    with shared(place(pytestconfig, tmp_path_factory)) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker that the tests of one module stop, kill, pause and start again. Whoever stops it starts it again."""
    present()
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test's topic has."""
    return unique(request.node.name)


@pytest.fixture
def topic(kafka_broker: Endpoint, topic_name: str) -> str:
    """A topic of one partition, of this test alone."""
    return kafka_broker.create_topic(topic_name)


@pytest.fixture
def make_topic(kafka_broker: Endpoint, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Make topics of this test alone: `make_topic(partitions=4, config={...})`."""

    def make(*, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        return kafka_broker.create_topic(unique(request.node.name), partitions=partitions, config=config)

    return make


def unique(name: str) -> str:
    """Return a topic name that is like `name` and like no other."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[:60].strip('-')}-{uuid.uuid4().hex[:8]}"
