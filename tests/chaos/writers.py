"""Writers that go on whatever is struck: one of a topic, plainly and in transactions, and one of growing files.

Each row has a number that no other has, and all else in it follows from the number. So what a row has to be is known
wherever the number is found.

>>> order(8), order(9)
({'n': 8, 'who': 'ada', 'amount': 56.0}, {'n': 9, 'who': None, 'amount': 63.0})
"""

from __future__ import annotations

import json
import uuid
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaException, Producer
from tests.chaos.threads import Repeated

from tidegauge.testing.endpoint import quiet

__all__ = ["FileWriter", "TopicWriter", "order", "visit"]

PARTITIONS = 2
PEOPLE = ("ada", "bob", "eve", "")
HELD_OPEN = 5_000
"""Milliseconds after which the broker aborts a transaction whose producer is gone."""


def order(n: int) -> dict[str, Any]:
    """Return the record of a number."""
    return {"n": n, "who": None if n % 9 == 0 else PEOPLE[n % 4], "amount": n * 7 % 100 + 0.0}


def visit(n: int) -> dict[str, Any]:
    """Return the line of a number."""
    return {"n": n, "page": "/" + "x" * (n % 13)}


class TopicWriter:
    """Writes to both partitions. sure: the numbers whose records were acknowledged; undone: those of transactions
    that were aborted. Of those that were cut off, the broker alone knows."""

    def __init__(self, servers: str, topic: str, random: Random) -> None:
        self.sure: set[int] = set()
        self.undone: set[int] = set()
        self._servers, self._topic, self._random = servers, topic, random
        self._numbers = count()
        self._transactional: Producer | None = None
        certain = {"acks": "all", "enable.idempotence": "true", "message.timeout.ms": "0", "linger.ms": "5"}
        self._plain = Producer(quiet(servers, **certain))
        self._thread = Repeated("topic", self._some, every=0.1)

    def leave(self) -> None:
        """Stop."""
        self._thread.leave()

    def finish(self) -> None:
        """Stop, and wait until all that was sent plainly is acknowledged. The broker is there."""
        self._thread.finish()
        assert self._plain.flush(60) == 0
        self._transactional = None

    def _some(self) -> None:
        numbers = [next(self._numbers) for _ in range(self._random.randrange(1, 12))]
        if self._random.random() < 0.7:
            partition = self._random.randrange(PARTITIONS)
            for n in numbers:
                self._send(self._plain, n, partition)
            self._plain.poll(0)
            return
        try:
            self._transact(numbers, commit=self._random.random() < 0.6)
        except KafkaException:
            self._transactional = None  # what it has begun is for the broker to abort, or for its successor

    def _transact(self, numbers: list[int], *, commit: bool) -> None:
        if self._transactional is None:
            lasting = {"transactional.id": uuid.uuid4().hex, "transaction.timeout.ms": HELD_OPEN, "linger.ms": "5"}
            begun = Producer({**quiet(self._servers), **lasting, "message.timeout.ms": HELD_OPEN})
            begun.init_transactions(HELD_OPEN / 1000)
            self._transactional = begun
        producer = self._transactional
        producer.begin_transaction()
        for n in numbers:
            self._send(producer, n, n % PARTITIONS, sure=False)
        if commit:
            producer.commit_transaction(HELD_OPEN / 1000)
            self.sure.update(numbers)
        else:
            producer.flush(HELD_OPEN / 1000)
            producer.abort_transaction(HELD_OPEN / 1000)
            self.undone.update(numbers)

    def _send(self, producer: Producer, n: int, partition: int, *, sure: bool = True) -> None:
        def heard(error: Any, _message: Any) -> None:
            if error is None:
                self.sure.add(n)

        value = json.dumps(order(n)).encode()
        producer.produce(self._topic, value, partition=partition, on_delivery=heard if sure else None)


class FileWriter:
    """Appends lines to files, some of them torn: the rest of such a line comes later."""

    def __init__(self, folder: Path, random: Random) -> None:
        folder.mkdir()
        self._folder, self._random = folder, random
        self._numbers = count()
        self._torn: dict[Path, bytes] = {}
        self._files: list[Path] = []
        self.begin_another()
        self._thread = Repeated("files", self._some, every=0.13)

    def begin_another(self) -> None:
        """Write to one more file from now on."""
        self._files.append(self._folder / f"{len(self._files)}.jsonl")

    def leave(self) -> None:
        """Stop."""
        self._thread.leave()

    def finish(self) -> None:
        """Stop. No line stays torn."""
        self._thread.finish()
        for path in [*self._torn]:
            self._append(path, self._torn.pop(path))

    def _some(self) -> None:
        path = self._random.choice(self._files)
        lines = [json.dumps(visit(next(self._numbers))) + "\n" for _ in range(self._random.randrange(1, 9))]
        data = self._torn.pop(path, b"") + "".join(lines).encode()
        if self._random.random() < 0.3:
            cut = self._random.randrange(1, 12)
            data, self._torn[path] = data[:-cut], data[-cut:]
        self._append(path, data)

    @staticmethod
    def _append(path: Path, data: bytes) -> None:
        with path.open("ab") as out:
            out.write(data)
