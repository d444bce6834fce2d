"""Spark's own Kafka connector reads what our reader reads, and fails where it fails."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.elsewhere import Found as Elsewhere
from tests.engine.framed import Found, drive
from tests.kafka import missing, unique
from tests.sources.kafka.writing import ANY_TIME, all_rows, numbers, transact, write
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.errors.engine import JavaMissing
from tidegauge.errors.kafka import ConnectorMissing
from tidegauge.errors.testing import JarsNotFetched
from tidegauge.sources import KafkaSource
from tidegauge.sources.kafka.planning import KafkaSplit, Range
from tidegauge.testing import Endpoint
from tidegauge.testing.jars import CONNECTOR, class_path

pytestmark = [pytest.mark.spark, pytest.mark.long]

LAST = 253_402_300_799_999
STAMP = int(time.time()) * 1000 - 60_123

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "200",
}


def many(broker: Endpoint) -> str:
    """A topic of two partitions with all that there can be in one."""
    topic = broker.create_topic(unique("many"), partitions=2, config=ANY_TIME)
    write(broker, topic, numbers(range(6)), key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=STAMP)
    transact(broker, topic, numbers(range(10, 14)))
    transact(broker, topic, numbers(range(90, 94)), commit=False)
    write(broker, topic, [b'{"n": 20, "word": "\xc3\xa6"}', b"{not json", None, b'{"n": "x"}'], key=b"\xff\x00")
    transact(broker, topic, numbers(range(90, 92)), commit=False)
    write(broker, topic, numbers(range(30, 35)), partition=1)
    for n, milliseconds in enumerate((-5, LAST + 1, LAST, 1, -1)):
        write(broker, topic, numbers([40 + n]), partition=1, timestamp=milliseconds)
    return topic


def compacted(broker: Endpoint) -> str:
    """A topic of which compaction has left the last of each key."""
    topic = broker.create_topic(unique("compacted"), config=COMPACTED)
    for n in range(13):  # a second apart, so each is a segment of its own; all but the last are compacted
        write(broker, topic, numbers([n]), key=b"key %d" % (n // 4), timestamp=STAMP + 1000 * n)
    it = KafkaSource(broker.servers, topic=topic, format=tg.Json("n long")).placed("flow", "it")
    eventually(lambda: [row["n"] for row in all_rows(it)] == [3, 7, 11, 12], within=60)
    return topic


@pytest.fixture(scope="module")
def found(kafka_broker: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Found:
    try:
        jars = class_path(CONNECTOR)
    except (JarsNotFetched, JavaMissing) as error:
        missing(error)
    topics = [many(kafka_broker), compacted(kafka_broker)]
    return drive(kafka_broker, topics, jars, tmp_path_factory.mktemp("framed"))


def test_both_readers_give_the_same_rows_in_the_same_epochs(found: Found) -> None:
    some = found.rows["spark"]["some"]
    assert found.rows["spark"] == found.rows["python"] | {"some": some}
    even = [row for row in found.rows["spark"]["all"] if row["n"] is not None and row["n"] % 2 == 0]
    wanted = [{"tens": row["n"] * 10, "place": row["_offset"], "_epoch": row["_epoch"]} for row in even]
    assert sorted(some, key=str) == sorted(wanted, key=str)
    assert found.counts["python"] == found.counts["spark"] == 6 + 4 + 4 + 10 + 4
    epochs = {row["_offset"]: row["_epoch"] for row in found.rows["spark"]["all"] if "compacted" in row["_partition"]}
    assert epochs == {3: 0, 7: 1, 11: 2, 12: 2}


def test_the_first_row_of_each_key_is_read_by_one_task_of_ours(found: Found) -> None:
    assert found.rows["firsts by python"] == found.rows["firsts by spark"]
    words = [(row["_epoch"], row["word"]) for row in found.rows["firsts by spark"]["firsts"]]
    assert len(words) == len(set(words)) > 1


def test_the_rows_are_the_committed_ones_with_all_that_kafka_knows_of_them(found: Found) -> None:
    rows = [row for row in found.rows["spark"]["all"] if "many" in row["_partition"]]
    rows.sort(key=lambda row: (row["_partition"], row["_offset"]))
    assert [row["n"] for row in rows] == [*range(6), *range(10, 14), 20, None, *range(30, 35), 42, 43, 44]
    assert [row["_timestamp"] for row in rows[-3:]] == [
        "9999-12-31 23:59:59.999000+00:00",
        "1970-01-01 00:00:00.001000+00:00",
        None,
    ]
    assert {key: value for key, value in rows[0].items() if key not in ("_partition", "_epoch")} == {
        "n": 0,
        "word": None,
        "_offset": 0,
        "_timestamp": str(datetime.fromtimestamp(STAMP / 1000, UTC)),
        "_key": "b'k'",
        "_headers": [{"key": "a", "value": "b'1'"}, {"key": "a", "value": None}],
    }
    assert (rows[10]["word"], rows[10]["_headers"]) == ("æ", None)
    bad = {row["raw"]: row["key"] for row in found.rows["spark"]["bad"]}
    assert {raw: key for raw, key in bad.items() if key is not None} == {
        r"""b'{"n": "x"}'""": r"b'\xff\x00'",
        "b'{not json'": r"b'\xff\x00'",
    }
    untimely = [(row["raw"], row["code"]) for row in found.rows["spark"]["bad"] if row["key"] is None]
    assert sorted(untimely) == [(f"""b'{{"n": {n}}}'""", "TG-0820") for n in (40, 41)]


def test_a_range_that_is_gone_is_the_loss_that_our_reader_says(found: Found) -> None:
    _late, (source, output, epoch, error) = found.failures
    assert (source, output, epoch, error["code"]) == ("orders", None, 0, "TG-0812")
    assert (error["evidence"]["asked"], error["evidence"]["there"]) == (0, 4)


def test_a_time_that_spark_cannot_hold_fails_the_source_with_its_place_and_is_no_job_without_end(
    found: Found,
) -> None:
    (_source, output, epoch, error), _lost = found.failures
    assert (output, epoch, error["code"], error["evidence"]["offset"]) == (None, 2, "TG-0820", 7)


def test_secrets_are_looked_up_where_the_client_is_made_and_are_in_no_plan(found: Found) -> None:
    assert found.secret == found.rows["python"]
    assert found.shown is False


def test_without_the_connector_the_error_says_which_package_to_add(classic: Any) -> None:
    it = KafkaSource("localhost:1", topic="orders", format=tg.Raw(), reader="spark").placed("shop", "orders")
    splits = [KafkaSplit(epoch=0, ranges=(Range("orders-0", 0, 1),), schema=pa.schema([]))]
    with pytest.raises(
        ConnectorMissing, match=r"spark\.jars\.packages=org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4"
    ):
        it.frame(classic, splits)


def test_on_a_server_without_the_connector_the_error_is_the_same(connect: Elsewhere) -> None:
    assert connect.refused == ConnectorMissing.code
