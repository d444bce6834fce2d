"""Tables in PostgreSQL as outputs: rows and upper in one transaction."""

from tidegauge.sinks.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
