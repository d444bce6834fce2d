"""What a broker does not let a user do is an error that names it, soon; once it is allowed, nothing is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from tests.sinks.kafka.conftest import OUTPUT, SCHEMA, Bench, write_id
from tests.waiting import eventually

import tidegauge.sinks.kafka.writer as writer_module
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.kafka import BrokerForbids, BrokerRefusesUs, SettingInvalid
from tidegauge.errors.kafkasink import MessageRefused, TransactionsRefused, TransactionTooLong, WriteForbidden
from tidegauge.kafka import Settings
from tidegauge.kafka.clients import admin, kafka
from tidegauge.kafka.cluster import offsets
from tidegauge.sinks.kafka.output import transactional_id
from tidegauge.testing import Endpoint

Maker = Callable[..., Bench]

library: Any = kafka("confluent_kafka.admin")

RIGHTS = frozenset({"topic describe", "topic write", "progress read", "progress write", "id write"})
"""What a user needs who may make no topics. To read or write is to describe, too."""


@dataclass(frozen=True)
class Door:
    """The broker's second door, by which `mallory` comes in, who may do what she is allowed to."""

    broker: Endpoint
    bench: Bench

    def allow(self, rights: Iterable[str]) -> None:
        """Allow it, and wait until the broker goes by it."""
        kinds, sink = library.ResourceType, self.bench.sink
        places = {
            "topic": (kinds.TOPIC, sink.topic),
            "progress": (kinds.TOPIC, sink.progress_topic),
            "id": (kinds.TRANSACTIONAL_ID, transactional_id(OUTPUT, sink.topic, prefix="")),
        }
        rules = []
        for place, operation in (right.split() for right in rights):
            kind, name = places[place]
            pattern, allowed = library.ResourcePatternType.LITERAL, library.AclPermissionType.ALLOW
            operation = library.AclOperation[operation.upper()]
            rules.append(library.AclBinding(kind, name, pattern, "User:mallory", "*", operation, allowed))
        client = self.broker.admin()
        for granted in client.create_acls(rules).values():
            granted.result()
        for rule in rules:
            what = (rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host)
            wanted = library.AclBindingFilter(*what, rule.operation, rule.permission_type)
            eventually(partial(_known, client, wanted))


def _known(client: Any, wanted: Any) -> object:
    return client.describe_acls(wanted).result()


@pytest.fixture
def door(make_bench: Maker, kafka_broker: Endpoint, topic: str, monkeypatch: pytest.MonkeyPatch) -> Door:
    config = {name: str(value) for name, value in kafka_broker.sasl("mallory").items()}
    monkeypatch.setenv("MALLORY", config.pop("sasl.password"))
    servers = config.pop("bootstrap.servers")
    settings = config | {"sasl.password": "env:MALLORY"}
    made = make_bench(topic=topic, partitions=None, progress_topic=f"{topic}.progress", settings=settings)
    return Door(kafka_broker, made.given(servers=servers))


@pytest.mark.parametrize(
    ("lacking", "error", "said"),
    [
        ("topic describe, topic write", BrokerForbids, "describe"),
        ("topic write", WriteForbidden, "Topic authorization failed"),
        ("progress write", WriteForbidden, "Topic authorization failed"),
        ("progress read", BrokerForbids, "read"),
        ("id write", TransactionsRefused, "shop:orders:"),
    ],
)
def test_what_a_user_may_not_do_is_named_and_once_it_is_allowed_nothing_is_missing(
    lacking: str, error: type[TidegaugeError], said: str, door: Door
) -> None:
    bench, left_out = door.bench, set(lacking.split(", "))
    door.broker.create_topic(bench.sink.progress_topic, config={"cleanup.policy": "compact"})
    everybody = bench.given(servers=door.broker.servers, settings={})
    everybody.commit(everybody.open(), 0, 1)
    door.allow(RIGHTS - left_out)
    files, began = bench.stage([1]), time.monotonic()
    with pytest.raises(error, match=said):
        bench.open().commit(1, 2, SCHEMA, files, write=write_id())
    assert time.monotonic() - began < 30
    door.allow(left_out)
    bench.open().commit(1, 2, SCHEMA, files, write=write_id())
    assert everybody.rows() == [("ada", 0), ("ada", 1)]


def test_a_user_who_may_make_no_topics_is_told_which_one_is_missing(door: Door) -> None:
    door.allow(RIGHTS)
    with pytest.raises(BrokerForbids, match=rf"make the topic '{door.bench.sink.progress_topic}'"):
        door.bench.commit(door.bench.open(), 0, 1)


def test_a_wrong_password_is_named_and_not_shown(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORY", "canary-4711")
    with pytest.raises(BrokerRefusesUs) as caught:
        door.bench.open()
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("setting", [{"acks": "1"}, {"max.in.flight": 100}])
def test_settings_with_which_messages_could_be_lost_or_doubled_are_refused(
    setting: dict[str, Any], exactly_once: bool, make_bench: Maker
) -> None:
    bench = make_bench(settings=setting, exactly_once=exactly_once)
    with pytest.raises(SettingInvalid, match=next(iter(setting))):
        bench.open().sweep(lambda: None) if exactly_once else bench.commit(bench.open(), 0, 1)


@pytest.mark.parametrize("bad", [[1], [1, 2]], ids=["one", "several"])
@pytest.mark.parametrize("exactly_once", [True, False])
def test_of_a_batch_the_message_that_was_refused_is_told_and_not_what_was_lost_with_it(
    bad: list[int], exactly_once: bool, make_bench: Maker, kafka_broker: Endpoint
) -> None:
    bench = make_bench(key="user", exactly_once=exactly_once)
    kafka_broker.create_topic(bench.topic, config={"cleanup.policy": "compact"})
    users = [None if n in bad else "ada" for n in range(4)]
    rows = pa.record_batch({"user": users, "amount": [0.0] * 4, "_epoch": [*range(4)]}, schema=SCHEMA)
    with pytest.raises(MessageRefused) as caught:
        bench.open().commit(0, 4, SCHEMA, bench.stage_rows(rows), write=write_id())
    assert caught.value.evidence["epoch"] == 1


@pytest.mark.parametrize("more", [False, True], ids=["at its commit", "while it is sent"])
def test_a_transaction_that_the_broker_gave_up_is_said_to_take_too_long_and_shows_nothing_twice(
    more: bool, make_bench: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = make_bench()
    patient.commit(patient.open(), 0, 1)
    bench = patient.given(settings={"transaction.timeout.ms": 1000})
    table, send = bench.open(), writer_module.TransactionalProducer.send
    table.sweep(lambda: None)
    files, write = bench.stage([1]), write_id()

    def ends() -> list[int]:
        """Where readers of committed messages stand, and of all: apart as long as the transaction is open."""
        with admin(Settings.of(bench.servers)) as client:
            asked = [
                offsets(client, [(bench.topic, 0)], "latest", servers=bench.servers, committed=committed)
                for committed in (True, False)
            ]
        return [next(iter(found.values())) for found in asked]

    def late(writer: Any, *given: Any) -> None:
        before = ends()[1]
        send(writer, *given)
        writer._handle.flush(10)
        eventually(lambda: (found := ends())[0] == found[1] > before + 1)  # the message, and that it counts for none
        deadline = time.monotonic() + 30
        while more and time.monotonic() < deadline:
            send(writer, *given)
            with suppress(KafkaException):  # as when it is told beside: the next one is refused with another number
                writer._handle.flush(0.2)

    with monkeypatch.context() as patch:
        patch.setattr(writer_module.TransactionalProducer, "send", late)
        with pytest.raises(TransactionTooLong, match=r"transaction\.timeout\.ms") as caught:
            table.commit(1, 2, SCHEMA, files, write=write)
    assert {name: caught.value.evidence[name] for name in ("lower", "last", "seconds")} == {
        "lower": 1,
        "last": 1,
        "seconds": 1,
    }
    assert bench.rows() == [("ada", 0)]
    after = patient.open()
    assert after.upper == 1
    after.commit(1, 2, SCHEMA, files, write=write)
    assert bench.rows() == [("ada", 0), ("ada", 1)]
