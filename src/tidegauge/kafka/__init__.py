"""What everything that talks to a Kafka cluster shares: settings, clients, and Kafka's errors as errors of ours.

It knows nothing of sources and sinks. The client library is imported where a client is made, and not before.
"""

from tidegauge.kafka.settings import Settings

__all__ = ["Settings"]
