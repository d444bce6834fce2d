"""Topics of a Kafka cluster as a source."""

from tidegauge.sources.kafka.planning import KafkaSplit
from tidegauge.sources.kafka.source import KafkaSource
from tidegauge.sources.kafka.topics import Topics

__all__ = ["KafkaSource", "KafkaSplit", "Topics"]
