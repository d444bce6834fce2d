"""One record to and from a broker, with the client that everybody uses."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tidegauge.testing.endpoint import quiet


def produce(servers: str, topic: str, *values: bytes, **settings: Any) -> list[KafkaError | None]:
    """Write values into partition 0; return for each what the broker said when it acknowledged or refused it."""
    said: list[KafkaError | None] = []
    producer = Producer({**quiet(servers), "delivery.timeout.ms": 60_000, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _message: said.append(error))
    producer.flush(60)
    return said


def consume(servers: str, topic: str, count: int) -> list[bytes | None]:
    """Read the first values of partition 0."""
    consumer = Consumer({**quiet(servers), "group.id": f"{topic}-readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()
