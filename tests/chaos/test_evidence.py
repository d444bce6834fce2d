"""What a witness takes for evidence: an answer of the broker, and nothing that its client makes of none."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest
from tests.chaos.evidence import Away, TopicSeen
from tests.chaos.writers import PARTITIONS
from tests.kafka import unique

from tidegauge.testing import KafkaBroker

pytestmark = pytest.mark.long


def test_a_broker_that_stands_still_tells_no_ends(own_broker: KafkaBroker) -> None:
    topic = own_broker.create_topic(unique("ends"), partitions=PARTITIONS)
    with closing(TopicSeen(own_broker.endpoint, topic, "nobody", pa.schema([]))) as seen:
        seen.ask_ends()
        ends = [seen.end(f"{topic}-{number}") for number in range(PARTITIONS)]
        own_broker.pause()
        try:
            with pytest.raises(Away):
                seen.ask_ends()
        finally:
            own_broker.resume()
        assert [seen.end(f"{topic}-{number}") for number in range(PARTITIONS)] == ends == [0] * PARTITIONS
