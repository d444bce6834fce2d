"""Columns are inferred from messages that are there: where they disappear under the sample, it is taken again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.sources.kafka.writing import NOW, forget, numbers, recreate, write

import tidegauge as tg
from tidegauge.remap.binding import Bound
from tidegauge.sources import KafkaSource
from tidegauge.sources.kafka.reading import messages
from tidegauge.testing import Endpoint


@pytest.mark.parametrize("stop", ["stop", "gap"])
@pytest.mark.parametrize("harm", [lambda broker, topic: forget(broker, topic, 2), recreate], ids=["taken", "anew"])
def test_messages_that_disappear_under_the_sample_fail_no_source_that_has_nothing_bound(
    kafka_broker: Endpoint,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Endpoint, str], None],
    stop: Any,
) -> None:
    write(kafka_broker, topic, numbers(range(3)))
    source = KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json(), on_data_loss=stop)

    def later(*asked: Any) -> Any:
        harm(kafka_broker, topic)
        return messages(*asked)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("tidegauge.sources.kafka.inferring.messages", later)
        assert source.probe(Bound(), now=NOW).schema is None
    write(kafka_broker, topic, numbers([3]))
    schema = source.probe(Bound(), now=NOW).schema
    assert schema is not None
    assert schema.names == ["n"]
