"""A topic of orders as both sides read it: our source, and Spark's own connector.

The queries get what suits them, as those over files do (`benchmarks.streaming`). The values are decoded by
`from_json` with the columns declared, once in each query.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import tidegauge as tg
from benchmarks.data import COLUMNS
from benchmarks.room import spark_session
from tidegauge.testing.jars import CONNECTOR, class_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["session_with_connector", "source", "stream"]


def session_with_connector() -> AbstractContextManager[SparkSession]:
    """One session for both sides, with Spark's own connector, which only theirs takes.

    All sessions of a process share a JVM, and so its class path: the first one decides.
    """
    return spark_session(jars=class_path(CONNECTOR).split(os.pathsep))


def source(servers: str, topic: str) -> tg.KafkaSource:
    """Return our source of a topic's orders."""
    return tg.KafkaSource(servers, topic=topic, format=tg.Json(COLUMNS))


def stream(session: SparkSession, servers: str, topic: str) -> DataFrame:
    """Return theirs."""
    from pyspark.sql import functions as sql

    reader: Any = session.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    order = sql.from_json(frame["value"].cast("string"), COLUMNS).alias("order")
    selected: DataFrame = frame.select(order).select("order.*")
    return selected
