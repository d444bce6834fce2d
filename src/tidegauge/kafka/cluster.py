"""What a cluster says of topics: which there are, their ids, and where their partitions begin and end.

Each question is one batched request, for one partition as for a thousand. A question is given up after `PATIENCE`
seconds, and sooner when the client has been told that it goes nowhere: that the broker does not let us in, or that no
broker answers.

Invariant: an unknown part of a partition's state is left out of an answer; it is never made up.

>>> partition("orders-eu", 12), split("orders-eu-12")
('orders-eu-12', ('orders-eu', 12))
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from tidegauge.errors.kafka import KafkaFailed
from tidegauge.kafka.clients import Client, kafka
from tidegauge.kafka.failures import (
    ALL_DOWN,
    REFUSALS,
    TIMED_OUT,
    UNKNOWN_TOPIC,
    explained,
    number,
    told,
    unanswered,
)

__all__ = ["PATIENCE", "AskedCluster", "Topic", "described", "gathered", "names", "offsets", "partition", "split"]

PATIENCE: Final = 10.0
"""Seconds for the answer to one question."""
_SOON: Final = 2.0
"""Seconds for a broker to come back after the client reports it down."""
_LOOK: Final = 0.1
_BETWEEN: Final = 0.3
_NONE: Final = -1
"""The offset where there is no record so late. One below it is no answer: nobody could be asked."""
_NAMES: Final = 1 << 16
"""Of how many partitions the names are remembered in parts: those of a source are asked for at each look."""
_NO_ID: Final = frozenset({"", "AAAAAAAAAAAAAAAAAAAAAA"})


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its id (KIP-516), "" where the broker has none, and how many partitions it has."""

    id: str
    partitions: int


def partition(topic: str, number: int) -> str:
    """Return a partition's name, as Kafka writes it."""
    return f"{topic}-{number}"


@lru_cache(maxsize=_NAMES)
def split(name: str) -> tuple[str, int]:
    """Return the topic and the number of a partition's name."""
    topic, _, number = name.rpartition("-")
    return topic, int(number)


def names(client: Client, *, servers: str) -> list[str]:
    """Return the names of all topics that we can see, without Kafka's own."""
    doing = "list the topics"
    try:
        found = client.handle.list_topics(timeout=PATIENCE)
    except Exception as error:
        if isinstance(error, kafka().KafkaException):
            _hear(client)
            raise _refusal(client, servers) or explained(error, servers=servers, doing=doing) from None
        raise
    return sorted(name for name in found.topics if not name.startswith("__"))


def described(client: Client, topics: Collection[str], *, servers: str) -> dict[str, Topic]:
    """Return the topics of these names that exist. Raises an error for one that the broker does not tell of."""
    if not topics:
        return {}
    library = kafka()
    doing = f"describe {_some(topics)}"
    asked = client.handle.describe_topics(library.TopicCollection(sorted(topics)), request_timeout=PATIENCE)
    answers = gathered(client, asked, servers=servers, doing=doing)
    there: dict[str, Topic] = {}
    for name, answer in answers.items():
        error = answer.exception()
        if error is None:
            found = answer.result()
            told_id = str(found.topic_id) if found.topic_id is not None else ""
            there[name] = Topic("" if told_id in _NO_ID else told_id, len(found.partitions))
        elif number(error) == TIMED_OUT and _answers(client):
            detail = (
                f"no answer within {PATIENCE:g} seconds, and one to another request: some of its brokers are away"
            )
            raise KafkaFailed(servers=servers, doing=doing, detail=detail)
        elif number(error) not in UNKNOWN_TOPIC:
            raise explained(error, servers=servers, doing=doing, topics=(name,))
    return there


def offsets(
    client: Client,
    partitions: Iterable[tuple[str, int]],
    at: Literal["earliest", "latest"] | int,
    *,
    servers: str,
    committed: bool = True,
) -> dict[str, int]:
    """Return where each partition begins, ends, or has its first record of `at` milliseconds since 1970 or later.

    committed: the end is that of the committed transactions, and a record of `at` or later counts only before it.
    A partition without a leader at present, or without a record so late, is left out. Raises the error of a partition
    when no partition has an answer, and of a time when any has none: it would look like one without a record so late.

    A client remembers for a quarter of an hour who leads a partition. It goes on asking that broker, also when the
    broker is gone or has answered that it leads no more. So a partition without an answer is asked for a second time,
    after the client has looked at the cluster again.
    """
    library, spec = kafka(), kafka("confluent_kafka.admin").OffsetSpec
    what = {"earliest": spec.earliest, "latest": spec.latest}[at]() if isinstance(at, str) else spec.for_timestamp(at)
    level = library.IsolationLevel.READ_COMMITTED if committed else library.IsolationLevel.READ_UNCOMMITTED
    wanting = {library.TopicPartition(topic, number): what for topic, number in partitions}
    topics = tuple({place.topic for place in wanting})
    doing = f"tell where {_some(topics)} ends" if at == "latest" else "tell offsets"
    found: dict[str, int] = {}
    problem: BaseException | None = None
    deadline = time.monotonic() + PATIENCE
    for again in (False, True):
        if not wanting:
            break
        if again:
            _answers(client)
        patience = max(_SOON, deadline - time.monotonic())
        asked = client.handle.list_offsets(wanting, isolation_level=level, request_timeout=patience)
        problem = None
        for place, answer in gathered(client, asked, servers=servers, doing=doing).items():
            if (error := answer.exception()) is not None:
                problem = error
            elif (offset := answer.result().offset) >= _NONE:
                del wanting[place]
                if offset != _NONE:
                    found[partition(place.topic, place.partition)] = offset
    if problem is not None and not (found and isinstance(at, str)):
        raise explained(problem, servers=servers, doing=doing, topics=topics)
    if wanting and not isinstance(at, str):
        silent = ", ".join(partition(place.topic, place.partition) for place in wanting)
        raise KafkaFailed(servers=servers, doing=doing, detail=f"no answer for {silent}")
    return found


def gathered(
    client: Client, asked: Mapping[Any, Future[Any]], *, servers: str, doing: str
) -> Mapping[Any, Future[Any]]:
    """Wait for the answers to a request of an admin client: futures that are done. Raises when none will come."""
    begun = time.monotonic()
    while True:
        waiting = wait(asked.values(), timeout=_LOOK).not_done
        failed = [error for answer in asked.values() if answer.done() and (error := answer.exception()) is not None]
        if not waiting and not failed:
            return asked
        _hear(client)
        spent = time.monotonic() - begun
        if (refusal := _refusal(client, servers)) is not None:
            raise refusal
        if not waiting:
            return asked
        if (ALL_DOWN in client.errors and spent > _SOON) or spent > PATIENCE + 1:
            detail = unanswered(client.errors, f"no answer in {PATIENCE:g} seconds")
            raise told(ALL_DOWN, detail, servers=servers, doing=doing)


def _hear(client: Client) -> None:
    client.handle.poll(0)  # what the client was told of its connections is told to `error_cb` here


def _refusal(client: Client, servers: str) -> Exception | None:
    for code in client.errors.keys() & REFUSALS:
        return told(code, client.errors[code], servers=servers, doing="connect")
    return None


def _answers(client: Client) -> bool:
    """Whether a broker answers to the oldest of requests. From its answer the client knows again who leads what.

    It asks for all topics: a question for one may create it.
    """
    try:
        client.handle.list_topics(timeout=_SOON)
    except Exception as error:
        if isinstance(error, kafka().KafkaException):
            return False
        raise
    return True


def _some(topics: Iterable[str]) -> str:
    listed = sorted(topics)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


@dataclass(frozen=True, slots=True)
class AskedCluster:
    """A cluster that is asked through a client. servers: for people."""

    client: Client
    servers: str

    def names(self) -> list[str]:
        """Return the names of all topics that we can see."""
        return names(self.client, servers=self.servers)

    def described(self, topics: Collection[str]) -> dict[str, Topic]:
        """Return the topics of these names that exist."""
        return described(self.client, topics, servers=self.servers)

    def offsets(
        self, places: Iterable[tuple[str, int]], at: Literal["earliest", "latest"] | int, *, committed: bool = True
    ) -> dict[str, int]:
        """Return what partitions have an answer for."""
        return offsets(self.client, places, at, servers=self.servers, committed=committed)

    def wait(self) -> None:
        """Wait for less than a second."""
        time.sleep(_BETWEEN)
