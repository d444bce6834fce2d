"""What is wrong is said with a code, in words that say what to change, within half a minute; nothing is lost.

What users see of it on the command line is in `tests/cli/test_kafka_in_trouble.py`, with more cases.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress

import pytest
from tests.sources.kafka.writing import NOW, all_rows, bind, numbers, rows, write

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.kafka import (
    BrokerForbids,
    BrokerUnreachable,
    KafkaMissing,
    NothingToInfer,
    NoTopicMatches,
    SettingInvalid,
    TopicUnknown,
)
from tidegauge.errors.secrets import SecretUnavailable
from tidegauge.kafka import clients
from tidegauge.remap.binding import Bound
from tidegauge.sources import KafkaSource
from tidegauge.testing import Endpoint

N = tg.Json("n long")


def secured(
    broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch, user: str, password: str | None = None
) -> KafkaSource:
    """A source that goes through the door that asks for a password."""
    settings = broker.sasl(user, password=password)
    servers = settings.pop("bootstrap.servers")
    monkeypatch.setenv("TIDEGAUGE_TEST_PASSWORD", settings["sasl.password"])
    settings["sasl.password"] = "env:TIDEGAUGE_TEST_PASSWORD"
    return KafkaSource(servers, topic=topic, format=N, settings=settings)


def fails(source: KafkaSource, kind: type[TidegaugeError], *, words: str) -> None:
    """Check what a probe raises, and that it does so in time."""
    begun = time.monotonic()
    with pytest.raises(kind, match=words) as raised:
        source.probe(Bound(), now=NOW)
    assert time.monotonic() - begun < 30
    assert isinstance(raised.value, Transient)


def test_a_broker_that_hangs_up_without_a_word_may_be_one_before_kafka_0_10() -> None:
    def hang_up() -> None:
        with suppress(OSError):  # the door was shut
            while True:
                door.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=hang_up, daemon=True).start()
        servers = f"127.0.0.1:{door.getsockname()[1]}"
        fails(KafkaSource(servers, topic="t", format=N), BrokerUnreachable, words="one before Kafka 0.10")
        door.shutdown(socket.SHUT_RDWR)


def test_an_address_that_no_name_service_knows() -> None:
    fails(KafkaSource("nowhere.invalid:9092", topic="t", format=N), BrokerUnreachable, words="nowhere.invalid:9092")


def test_a_right_password_lets_the_source_read(
    kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(kafka_broker, topic, numbers([1]))
    source = secured(kafka_broker, topic, monkeypatch, "alice")
    assert [row["n"] for row in all_rows(source)] == [1]
    assert "wonderland" not in repr(source) + str(source.describe())


def test_no_permission(kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(secured(kafka_broker, topic, monkeypatch, "mallory"), BrokerForbids, words=f"describe {topic}")


def test_a_secret_that_is_not_there(kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = secured(kafka_broker, topic, monkeypatch, "alice")
    monkeypatch.delenv("TIDEGAUGE_TEST_PASSWORD")
    fails(source, SecretUnavailable, words="env:TIDEGAUGE_TEST_PASSWORD")


def test_an_unknown_topic_is_waited_for(kafka_broker: Endpoint, topic_name: str) -> None:
    source = KafkaSource(kafka_broker.servers, topic=topic_name, format=N)
    fails(source, TopicUnknown, words=topic_name)
    kafka_broker.create_topic(topic_name)
    assert source.probe(Bound(), now=NOW).details.keys() == {f"{topic_name}-0"}


def test_a_pattern_that_matches_nothing_and_then_something(kafka_broker: Endpoint, topic_name: str) -> None:
    source = KafkaSource(kafka_broker.servers, topic=tg.Topics(pattern=f"{topic_name}.*"), format=N)
    fails(source, NoTopicMatches, words=topic_name)
    kafka_broker.create_topic(f"{topic_name}-eu")
    bound, _ = bind(Bound(), source.probe(Bound(), now=NOW), source)
    kafka_broker.create_topic(f"{topic_name}-us")  # a topic that comes later enters from its beginning
    write(kafka_broker, f"{topic_name}-us", numbers([5]))
    bound, slices = bind(bound, source.probe(bound, now=NOW), source)
    assert [row["n"] for row in rows(source, slices, bound)] == [5]


def test_a_setting_that_kafka_does_not_know() -> None:
    source = KafkaSource("127.0.0.1:1", topic="t", format=N, settings={"fetch.maximum": 5})
    fails(source, SettingInvalid, words=r"fetch\.maximum")


def test_without_the_client_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SHELF", clients.Shelf())
    clients.kafka.cache_clear()
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    with pytest.raises(KafkaMissing, match=r"tidegauge\[kafka\]"):
        KafkaSource("127.0.0.1:1", topic="t", format=N).probe(Bound(), now=NOW)
    flow = tg.Dataflow("shop", store="sqlite:///shop.db")
    with pytest.raises(KafkaMissing):  # where the flow is made: no source waits for a package
        flow.source("orders", KafkaSource("127.0.0.1:1", topic="t", format=N))


def test_columns_are_inferred_from_messages_and_no_message_tells_nothing(kafka_broker: Endpoint, topic: str) -> None:
    source = KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json())
    assert source.probe(Bound(), now=NOW).schema is None  # nothing is bound before there is one
    write(kafka_broker, topic, [b"no json"])
    fails(source, NothingToInfer, words=topic)
    write(kafka_broker, topic, [b'{"id": 1, "user": "ada"}'])
    schema = source.probe(Bound(), now=NOW).schema
    assert schema is not None
    assert schema.names == ["id", "user"]
