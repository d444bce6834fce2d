"""Kafka topics as outputs: exactly once for readers of committed messages."""

from tidegauge.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
