"""The broker for tests is a real one: it keeps what it acknowledged, asks for passwords, and can be ill treated."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.testing.clients import consume, produce
from tests.waiting import eventually

from tidegauge.errors.testing import BrokerDidNotStart, BrokerNotRunning, KafkaToolFailed, TopicNotReady
from tidegauge.testing import Endpoint, KafkaBroker
from tidegauge.testing.endpoint import quiet

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def test_what_is_produced_is_consumed(kafka_broker: Endpoint, topic: str) -> None:
    assert produce(kafka_broker.servers, topic, b"one", b"two") == [None, None]
    assert consume(kafka_broker.servers, topic, 2) == [b"one", b"two"]


def test_a_new_topic_can_be_written_at_once_in_every_partition(kafka_broker: Endpoint, topic_name: str) -> None:
    kafka_broker.create_topic(topic_name, partitions=20, config={"cleanup.policy": "compact"})
    known = kafka_broker.admin().list_topics(topic_name, timeout=10).topics[topic_name]
    assert {partition.leader for partition in known.partitions.values()} == {1}
    assert len(known.partitions) == 20


def test_a_topic_that_is_there_already_is_not_taken_for_a_new_one(kafka_broker: Endpoint, topic: str) -> None:
    with pytest.raises(TopicNotReady, match=rf"TG-0885: the topic '{topic}' .*already exists"):
        kafka_broker.create_topic(topic)


def test_kafkas_own_tools_see_a_consumer_group(kafka_broker: Endpoint, topic: str) -> None:
    produce(kafka_broker.servers, topic, b"one", b"two", b"three")
    consumer = Consumer({**quiet(kafka_broker.servers), "group.id": f"{topic}-readers"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    told = kafka_broker.run_tool(
        GROUPS, "--bootstrap-server", kafka_broker.servers, "--describe", "--group", f"{topic}-readers"
    )
    assert [line.split()[1:6] for line in told.splitlines() if line.startswith(topic)] == [
        [topic, "0", "1", "3", "2"]
    ]


def test_a_tool_that_fails_says_what_it_printed(kafka_broker: Endpoint) -> None:
    with pytest.raises(KafkaToolFailed, match=r"TG-0883: .*ConsumerGroupCommand --sideways .*sideways is not a rec"):
        kafka_broker.run_tool(GROUPS, "--sideways")


def test_the_second_door_knows_its_users(kafka_broker: Endpoint, topic: str) -> None:
    alice = kafka_broker.sasl("alice")
    assert produce(kafka_broker.sasl_servers, topic, b"one", **alice) == [None]
    heard: list[str] = []
    guess = {**kafka_broker.sasl("alice", password="a guess"), "error_cb": lambda error: heard.append(error.name())}
    producer = Producer({**quiet(kafka_broker.sasl_servers), **guess})
    producer.produce(topic, b"two", on_delivery=lambda error, _message: heard.append(f"{error and error.name()}"))
    eventually(lambda: producer.poll(0.01) is not None and "_AUTHENTICATION" in heard)
    producer.purge()
    producer.flush(60)
    assert heard[-1] == "_PURGE_QUEUE"


def test_mallory_may_do_what_a_rule_lets_her(kafka_broker: Endpoint, topic: str) -> None:
    mallory = kafka_broker.sasl("mallory")
    refused = produce(kafka_broker.sasl_servers, topic, b"one", **mallory)
    assert [error.name() for error in refused if error] == ["TOPIC_AUTHORIZATION_FAILED"]
    kafka_broker.allow("mallory", "write", topic)
    assert produce(kafka_broker.sasl_servers, topic, b"two", **mallory) == [None]
    assert consume(kafka_broker.servers, topic, 1) == [b"two"]


@pytest.mark.long
def test_a_restart_keeps_records_and_ports(own_broker: KafkaBroker, topic_name: str) -> None:
    own_broker.create_topic(topic_name)
    servers, process = own_broker.servers, own_broker.pid
    assert produce(servers, topic_name, b"one") == [None]
    own_broker.restart()
    assert (own_broker.servers, own_broker.pid != process) == (servers, True)
    assert produce(servers, topic_name, b"two") == [None]
    assert consume(servers, topic_name, 2) == [b"one", b"two"]


@pytest.mark.long
def test_a_killed_broker_has_what_it_acknowledged(own_broker: KafkaBroker, topic_name: str) -> None:
    own_broker.create_topic(topic_name)
    assert produce(own_broker.servers, topic_name, b"one") == [None]
    own_broker.kill()
    assert own_broker.pid == -1
    with pytest.raises(BrokerNotRunning, match="it was told to pause"):
        own_broker.pause()
    own_broker.start()
    assert own_broker.running
    assert consume(own_broker.servers, topic_name, 1) == [b"one"]


def test_a_paused_broker_answers_nothing_until_it_goes_on(own_broker: KafkaBroker) -> None:
    admin = own_broker.admin()
    assert admin.list_topics(timeout=10).brokers
    own_broker.pause()
    assert own_broker.running
    with pytest.raises(KafkaException, match=r"Timed out|transport failure"):  # as the client was connected, or not
        admin.list_topics(timeout=0.2)
    own_broker.resume()
    assert admin.list_topics(timeout=10).brokers


def test_a_broker_that_cannot_start_shows_the_end_of_its_log() -> None:
    broker = KafkaBroker()
    taken = socket.create_server(("127.0.0.1", broker.ports.controller))
    with taken, pytest.raises(BrokerDidNotStart, match="TG-0880") as raised:
        broker.__enter__()
    assert "ended before it answered" in raised.value.summary
    assert "Address already in use" in raised.value.summary
    assert broker.folder is None


def test_a_setting_that_kafka_does_not_take_is_named() -> None:
    with pytest.raises(
        BrokerDidNotStart, match=r"(?s)could not be set up.*Invalid value soon for configuration log\.retention\.ms"
    ):
        KafkaBroker(settings={"log.retention.ms": "soon"}).__enter__()


def test_a_broker_that_takes_too_long_is_not_waited_for() -> None:
    with pytest.raises(BrokerDidNotStart, match=r"did not answer within 0\.01 seconds"):
        KafkaBroker(within=0.01).__enter__()


def test_importing_the_kit_loads_neither_pytest_nor_a_client() -> None:
    program = "import sys, tidegauge.testing; print({'pytest', 'confluent_kafka', 'pyspark'} & set(sys.modules))"
    environ = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "set()\n"
