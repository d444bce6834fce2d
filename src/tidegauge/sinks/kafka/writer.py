"""The producer of a driver: what it sends is one transaction, and it knows what a failure of one means.

Invariant: between `begin` and the return of `commit` nothing is visible to readers of committed messages. After any
error the writer is of no more use: `abandon` it, and make another. Of an error in `commit` nobody knows whether the
transaction is committed; the progress topic says it, to who has the transactional id next.

Without a transactional id messages are visible as they come, and `commit` waits until all of them are acknowledged
before it writes what it is given last.

Memory is bounded by the client's queue (`queue.buffering.max.kbytes`, 64 MiB unless set): where it is full, sending
waits. The client counts values alone there; so it waits also where keys and headers on the way have `ASIDE` bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.kafkasink import (
    PartitionUnknown,
    TransactionFailed,
    TransactionsRefused,
    TransactionTimeoutRefused,
)
from tidegauge.kafka.clients import kafka
from tidegauge.kafka.failures import explained
from tidegauge.kafka.settings import Settings, Value
from tidegauge.sinks.kafka.messages import MARK, MessageLayout
from tidegauge.sinks.kafka.verdict import Facts, Loss, failed, refused, says_nothing

__all__ = ["EPOCH_HEADER", "PATIENCE", "TRANSACTION_MS", "TransactionalProducer"]

EPOCH_HEADER: Final = f"{MARK}epoch"
"""The header with a message's epoch, in decimal digits."""

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see

PATIENCE: Final = 30.0
"""Seconds that the broker has to take or answer something; then we give the commit up, and try it again."""

TRANSACTION_MS: Final = 300_000
"""How long a transaction may take, unless the user says otherwise. Readers wait so long for one whose driver died."""

ASIDE: Final = 64 << 20
"""About how many bytes of keys and headers may be on the way."""

_LOGGER: Final = logging.getLogger("tidegauge.kafka")
_LOGGER.addHandler(logging.NullHandler())  # the client would otherwise write to the terminal

# Numbers of the protocol, and of librdkafka below 0.
_NO_TRANSACTIONS: Final = frozenset({31, 35, 53})
_BAD_TIMEOUT: Final = 50
_MOMENT: Final = 1.0


class TransactionalProducer:
    """A producer for `layout.topic`, with a transactional id, or "" for none. `fence` it first."""

    def __init__(self, settings: Settings, layout: MessageLayout, id: str, *, env: Env) -> None:
        self._settings: Final = settings
        self._layout: Final = layout
        self._id: Final = id
        self._clock: Final[Callable[[], float]] = env.monotonic
        self._limit: Final = float(settings.get("transaction.timeout.ms", TRANSACTION_MS)) / 1000
        self._loss: Loss | None = None
        self._span = (0, 0)
        self._began = 0.0
        self._closures: tuple[int, Callable[[Any, Any], None]] | None = None
        self._error: Final[Any] = kafka().KafkaException
        self._handle: Any = self._made()

    def fence(self) -> None:
        """Shut out every older producer with the id; what it has not committed is aborted.

        Raises `TransactionsRefused`, `TransactionTimeoutRefused`, and transient errors.
        """
        if not self._id:
            return
        try:
            self._handle.init_transactions(PATIENCE)
        except self._error as error:
            code, detail = _told(error)
            if code in _NO_TRANSACTIONS:
                raise TransactionsRefused(id=self._id, detail=detail) from None
            if code == _BAD_TIMEOUT:
                raise TransactionTimeoutRefused(milliseconds=round(self._limit * 1000)) from None
            raise explained(error, servers=self._settings.servers, doing="begin transactions") from None

    def begin(self, lower: int, upper: int) -> None:
        """Begin a transaction for the epochs `[lower, upper)`."""
        self._span, self._began = (lower, upper), self._clock()
        if self._id:
            try:
                self._handle.begin_transaction()
            except self._error as error:
                raise self._failure(error) from None

    def send(self, epoch: int, messages: pa.RecordBatch) -> None:
        """Send messages of one epoch. Raises the fault of one that was sent, or of the transaction."""
        lost = self._losses(epoch)
        mark = (EPOCH_HEADER, str(epoch).encode())
        names = ("headers", "partition", "timestamp")
        plain = all(messages.column(name).null_count == messages.num_rows for name in names)
        keys, values = messages.column("key").to_pylist(), messages.column("value").to_pylist()
        if plain:
            headers = [mark]
            for key, value in zip(keys, values, strict=True):
                self._produce(self._layout.topic, epoch, key, value, {"headers": headers, "on_delivery": lost})
        else:
            rest = zip(*(messages.column(name).to_pylist() for name in names), strict=True)
            for key, value, (pairs, partition, timestamp) in zip(keys, values, rest, strict=True):
                more: dict[str, Any] = {"on_delivery": lost}
                more["headers"] = [*((p["key"] or "", p["value"]) for p in pairs or () if p), mark]
                if partition is not None:
                    if partition < 0:
                        raise PartitionUnknown(
                            epoch=epoch, partition=None, topic=self._layout.topic, column=self._layout.partition
                        )
                    more["partition"] = partition
                if timestamp is not None:
                    more["timestamp"] = timestamp
                self._produce(self._layout.topic, epoch, key, value, more)
        self._serve(lambda: self._handle.poll(0))
        aside = messages.column("headers").nbytes + (pc.sum(pc.binary_length(messages.column("key"))).as_py() or 0)
        most = ASIDE * messages.num_rows // max(1, aside)
        while (waiting := len(self._handle)) > most:
            self._wait(waiting, lambda: self._handle.poll(0.05))

    def commit(self, topic: str, key: bytes, value: bytes) -> None:
        """Write a last message into partition 0 of a topic, and commit. See the module for what an error means."""
        if not self._id:
            self._drain()
        last = self._span[1] - 1
        self._produce(topic, last, key, value, {"partition": 0, "on_delivery": self._losses(last)})
        self._drain()
        given_up = self._clock() + 2 * PATIENCE
        while self._id:
            try:
                self._handle.commit_transaction(PATIENCE)
            except self._error as error:
                if error.args[0].retriable() and self._clock() < given_up:
                    continue  # the same commit, taken up again
                raise self._failure(error) from None
            else:
                return

    def abandon(self) -> None:
        """Let go of everything: abort the open transaction, as far as the broker answers."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        with suppress(Exception):
            handle.purge()
        if self._id:
            with suppress(Exception):
                handle.abort_transaction(5)
        # It is not closed: that would try to abort once more, and warn. It goes when it is forgotten, which is here.

    # -- the client

    def _made(self) -> Any:
        fixed: dict[str, Value] = {"enable.idempotence": True, "delivery.report.only.error": True}
        if self._id:
            fixed["transactional.id"] = self._id
            fixed["transaction.timeout.ms"] = round(self._limit * 1000)
        config: dict[str, Any] = {
            **self._settings.producer(
                linger_ms=20,
                queue_buffering_max_kbytes=64 << 10,
                partitioner="murmur2_random",
                compression_type="lz4",
            ),
            **fixed,
            "error_cb": _unheard,  # each failure is told where something is asked
            "logger": _LOGGER,
        }
        try:
            return kafka().Producer(config)
        except (self._error, TypeError, ValueError) as error:
            raise explained(error, servers=self._settings.servers, doing="make a producer") from None

    def _produce(self, topic: str, epoch: int, key: bytes | None, value: bytes | None, more: dict[str, Any]) -> None:
        while True:
            try:
                self._handle.produce(topic, value, key, **more)
            except BufferError:
                self._wait(len(self._handle), lambda: self._handle.poll(0.05))
            except self._error as error:
                code, detail = _told(error)
                if says_nothing(code):
                    self._listen()
                self._check()
                size = len(key or b"") + len(value or b"")
                found = refused(self._layout, epoch, code, detail, size=size, partition=more.get("partition", -1))
                raise found or self._failure(error) from None
            else:
                return

    def _listen(self) -> None:
        """Wait a moment to hear which message it was that made the transaction fail: it is told just after."""
        given_up = self._clock() + _MOMENT
        while (self._loss is None or says_nothing(self._loss.code)) and self._clock() < given_up:
            self._ask(lambda: self._handle.poll(0.05))

    def _drain(self) -> None:
        """Wait until everything sent was acknowledged."""
        while left := len(self._handle):
            self._wait(left, lambda: self._handle.flush(0.5))
        self._serve(lambda: self._handle.poll(0))

    def _wait(self, waiting: int, ask: Callable[[], object]) -> None:
        """Wait until less is under way than was. Raises `TransactionFailed` when the broker takes nothing."""
        given_up = self._clock() + PATIENCE
        while len(self._handle) >= waiting:
            self._serve(ask)
            if self._clock() > given_up:
                detail = f"the broker took none of {waiting} messages in {PATIENCE:g} s"
                raise TransactionFailed(topic=self._layout.topic, detail=detail)

    def _serve(self, ask: Callable[[], object]) -> None:
        """Let the client tell what it has to tell, and raise it."""
        self._ask(ask)
        self._check()

    def _ask(self, ask: Callable[[], object]) -> None:
        """Let the client tell what it has to tell.

        A fatal error is raised by the client where it is asked anything; when it has messages to give back at the
        same time, it trips over itself, and the error is the cause of a `SystemError`.
        """
        try:
            ask()
        except (self._error, SystemError) as error:
            fatal: Any = error if isinstance(error, self._error) else error.__cause__ or error.__context__
            if not isinstance(fatal, self._error):
                raise
            raise self._failure(fatal) from None

    def _losses(self, epoch: int) -> Callable[[Any, Any], None]:
        """Return what takes note of a message of the epoch that was not delivered."""
        if self._closures is None or self._closures[0] != epoch:

            def lost(error: Any, message: Any) -> None:
                if error is None:
                    return
                key, value = message.key(), message.value()
                size = len(key or b"") + len(value or b"")
                keyed = key is not None
                loss = Loss(epoch, int(error.code()), str(error.str()), size, message.partition(), keyed)
                if self._loss is None or loss.weight > self._loss.weight:
                    self._loss = loss

            self._closures = (epoch, lost)
        return self._closures[1]

    def _check(self) -> None:
        if self._loss is None:
            return
        if says_nothing(self._loss.code):
            self._listen()
        loss = self._loss
        size, partition = loss.size, loss.partition
        found = refused(self._layout, loss.epoch, loss.code, loss.detail, size=size, partition=partition)
        raise found or self._failed(loss.code, loss.detail)

    def _failure(self, error: BaseException) -> TidegaugeError:
        return self._failed(*_told(error))

    def _failed(self, code: int, detail: str) -> TidegaugeError:
        """Return what a failure means; where it only follows from another one, what that means.

        A transaction that has failed says why when it is asked to begin anew, which it never does in that state.
        """
        if self._id and says_nothing(code):
            try:
                self._handle.begin_transaction()
            except self._error as error:
                code, detail = _told(error)
        return failed(code, detail, self._facts())

    def _facts(self) -> Facts:
        lower, upper = self._span
        return Facts(self._layout.topic, self._id, lower, upper, self._clock() - self._began, self._limit)


def _unheard(_error: Any) -> None:
    return None


def _told(error: BaseException) -> tuple[int, str]:
    found: Any = error.args[0]
    return int(found.code()), str(found.str())
