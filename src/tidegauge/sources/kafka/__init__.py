"""Topics of a Kafka cluster as a source."""

from tidegauge.sources.kafka.inquiry import Topics
from tidegauge.sources.kafka.planning import KafkaSplit
from tidegauge.sources.kafka.source import KafkaSource

__all__ = ["KafkaSource", "KafkaSplit", "Topics"]
