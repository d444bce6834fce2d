"""What a witness takes for evidence: an answer of the broker, and nothing that its client makes of none."""

from __future__ import annotations

from contextlib import closing, suppress

import pyarrow as pa
import pytest
from tests.chaos.evidence import Away, TopicSeen
from tests.chaos.writers import PARTITIONS
from tests.kafka import unique
from tests.waiting import eventually

from tidegauge.testing import KafkaBroker

pytestmark = pytest.mark.long


def test_a_broker_that_stands_still_tells_no_ends(own_broker: KafkaBroker) -> None:
    topic = own_broker.create_topic(unique("ends"), partitions=PARTITIONS)
    with closing(TopicSeen(own_broker.endpoint, topic, "nobody", pa.schema([]))) as seen:
        eventually(lambda: _told(seen))  # as a witness does, which looks later
        ends = [seen.end(f"{topic}-{number}") for number in range(PARTITIONS)]
        own_broker.pause()
        try:
            with pytest.raises(Away):
                seen.ask_ends()
        finally:
            own_broker.resume()
        assert [seen.end(f"{topic}-{number}") for number in range(PARTITIONS)] == ends == [0] * PARTITIONS


def _told(seen: TopicSeen) -> bool:
    with suppress(Away):
        seen.ask_ends()
        return True
    return False
