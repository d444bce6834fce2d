"""Reading exactly some ranges of offsets, each of a partition of its own.

Offsets have holes: compaction takes records away, a transaction leaves a marker, and aborted records are not shown.
So a range is not counted out. It is over when the consumer has come to its end: with a record at or after `upper`,
or, where nothing follows, with the broker's word that the consumer is at the end of the partition.

Invariant (law 2): every record of `[lower, upper)` that the broker has is in a batch, once and in order, or the read
raises. A record below the place that was reached is a replay after a reconnection, and is dropped.

Memory: whatever messages follow each other, a batch has at most about `BATCH_BYTES` and one gulp, and the client
keeps at most `FEW` messages and one answer of each broker, of `FETCH` bytes. It weighs values alone, so only their
number bounds keys and headers. A gulp takes the messages at hand: nothing waits for more of it.

Throughput: a client that keeps so few asks for more only when it is nearly empty. So a batch is over when the client
is empty, if it is worth it: the next answer comes while this one is decoded.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from tidegauge.errors.kafka import KafkaFailed, MessageTooLarge
from tidegauge.kafka import cluster
from tidegauge.kafka.clients import Client, admin, consumer, kafka
from tidegauge.kafka.cluster import AskedCluster
from tidegauge.kafka.failures import ALL_DOWN, REFUSALS, explained, told, unanswered
from tidegauge.kafka.settings import Settings, Value
from tidegauge.sources.kafka.inquiry import Inquiry
from tidegauge.sources.kafka.planning import Range, outrun

__all__ = ["BATCH", "GULP", "Bulk", "headers_of", "messages"]

BATCH: Final = 10_000
"""Messages in a batch, at most."""
GULP: Final = 500
"""Messages taken from the consumer at once, and forgotten before the next. Python's garbage collector looks at young
objects when there are 700 more of them: below that it has nothing to do, above it messages cost twice as much."""
BATCH_BYTES: Final = 4 << 20
"""When a batch is full, by the bytes of its messages."""
GULP_BYTES: Final = 1 << 20
"""About how many bytes a gulp has, if its messages are like those of the one before."""
WORTH: Final = 2_500
"""Messages that are worth a batch when no more are there."""
WORTH_BYTES: Final = 512 << 10
"""The same by their bytes."""
FEW: Final = 8
"""Messages after which a consumer fetches no more ahead."""
QUEUE_KB: Final = 8 << 10
"""Kilobytes of values after which it does not, either."""
FETCH: Final = 1 << 20
"""Bytes that a broker is asked for at once; of one message it gives all."""
PATIENCE: Final = 30.0
"""Seconds without any progress after which a read is given up, to be tried again."""
_LONG: Final = 1.0
"""Seconds without any progress, nor an error, after which the broker is asked whether it has the records that are
waited for. A consumer does not distinguish a topic that was deleted, or recreated and is shorter, from one to which
nothing is written."""
_DOWN: Final = 5.0
_TIME: Final = itemgetter(1)
_FIRST: Final = 16
_FASTER: Final = 4
_HEADER: Final = 200
"""Bytes that a header takes beside its name and its value."""
_WAIT: Final = 0.02
_SHOWN: Final = 100
_EOF, _OUT_OF_RANGE, _TOO_LARGE = -191, frozenset({1, -140}), 10
_LIMIT: Final = "receive.message.max.bytes"
OURS: Final[dict[str, Value]] = {
    "queued_min_messages": FEW,
    "queued_max_messages_kbytes": QUEUE_KB,
    "fetch_wait_max_ms": 20,
    "fetch_error_backoff_ms": 100,
    "fetch_queue_backoff_ms": 1,
    "fetch_max_bytes": FETCH,
    "max_partition_fetch_bytes": FETCH,
    "reconnect_backoff_max_ms": 1000,
}
"""How a consumer is set up, unless the user says otherwise."""


@dataclass(slots=True)
class Bulk:
    """Some messages, by columns; those of one partition are in order.

    bytes: about what they take. runs: the partitions, each with how many messages of it follow each other. times:
    milliseconds since 1970, -1 where there is none. headers: empty unless they are wanted; of a message whose headers
    the client cannot show, why it cannot.
    """

    runs: list[tuple[str, int]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    bytes: int = 0

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def worth(self) -> bool:
        """Whether it is worth a batch."""
        return len(self) >= WORTH or self.bytes >= WORTH_BYTES

    def add(self, partition: str, good: list[Any], offsets: list[int], *, headers: bool) -> None:
        """Take the wanted parts out of messages, which are then forgotten: no Python frame for any of them."""
        kind = type(good[0])
        keys = list(map(kind.key, good))
        self.runs.append((partition, len(good)))
        self.offsets += offsets
        self.values += map(kind.value, good)
        self.keys += keys
        self.times += map(_TIME, map(kind.timestamp, good))
        self.bytes += len(good) + sum(map(len, good)) + sum(map(len, filter(None, keys)))
        if headers:
            told = headers_of(good)
            self.headers += told
            self.bytes += sum(map(_weight, filter(None, told)))


def headers_of(messages: Sequence[Any]) -> list[Any]:
    """Return the headers of messages, each asked once; if a name is no text, the fault instead.

    For such a one the client raises and returns at once, which `map` notices; what it returns must never be seen, nor
    would it raise a second time: both can end the process.
    """
    found: list[Any] = []
    rest = iter(messages)
    while len(found) < len(messages):
        try:
            found.extend(map(type(messages[0]).headers, rest))  # what came before an error stays
        except SystemError as error:
            cause = error.__cause__
            if not isinstance(cause, UnicodeDecodeError):
                raise
            found.append(f"the name of a header is not UTF-8: {cause.object[:_SHOWN]!r}")
    return found


def messages(
    settings: Settings, group: str, wanted: Sequence[Range], what: Inquiry, *, headers: bool = False
) -> Generator[Bulk]:
    """Yield the messages of ranges, each of a partition of its own.

    Raises what `outrun` returns, and what `tidegauge.kafka` raises.
    """
    start = {piece.partition: piece.lower for piece in wanted}
    with consumer(settings, group, at=start, **OURS) as client:
        if client.place != start:
            place = kafka().TopicPartition
            client.handle.assign([place(*cluster.split(name), offset) for name, offset in start.items()])
        client.place = None
        reader = _RangeReader(client, settings, wanted, what, headers=headers)
        yield from reader.read()
        if reader.exact:
            # The next ranges often begin where these ended: then it goes on, with what it has fetched ahead.
            client.place = {piece.partition: piece.upper for piece in wanted}
        else:
            client.handle.unassign()  # with what it has fetched ahead


@dataclass(slots=True)
class _RangePlace:
    """Where the reading of a range is: `at` is the next offset."""

    partition: str
    at: int
    upper: int


class _RangeReader:
    """The state of one read. exact: whether nothing beyond the ranges was taken from the consumer."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        wanted: Sequence[Range],
        what: Inquiry,
        *,
        headers: bool,
    ) -> None:
        self.client = client
        self.settings = settings
        self.what = what
        self.headers = headers
        self.places = {
            cluster.split(one.partition): _RangePlace(one.partition, one.lower, one.upper) for one in wanted
        }
        self.exact = True
        self.asked = False
        """Whether the broker was asked since the last progress."""
        self.gulp = _FIRST

    def read(self) -> Iterator[Bulk]:
        """Yield until the ranges are over."""
        held, moved, left = Bulk(), time.monotonic(), self._left()
        while left:
            # No more is asked for than a range can have, so that what follows it stays with the consumer.
            got = self._gulp(min(self.gulp, BATCH - len(held), left), wait=not held.worth)
            before, weight = left, held.bytes
            if got:
                left = self._take(got, held)
                self.gulp = _sized(self.gulp, len(got), held.bytes - weight)
            if left < before:
                moved, self.asked = time.monotonic(), False
            else:
                self._look(time.monotonic() - moved)
            if len(held) >= BATCH or held.bytes >= BATCH_BYTES or (held and not got):
                yield held
                held, moved = Bulk(), time.monotonic()  # nobody knows how long what is yielded takes
        if held:
            yield held

    def _gulp(self, most: int, *, wait: bool) -> list[Any]:
        """Return what the consumer has. wait: where that is nothing, the next one, if it comes soon."""
        handle = self.client.handle
        got: list[Any] = handle.consume(most, 0) or (handle.consume(1, _WAIT) if wait else [])
        return got

    def _left(self) -> int:
        return sum(place.upper - place.at for place in self.places.values())

    def _take(self, got: list[Any], held: Bulk) -> int:
        """Add the messages that are of the ranges and new, move on, and return how many offsets are left.

        Events come last: the end of a partition, in the same gulp as its last messages, is beyond these.
        """
        good, events, kind = got, [], type(got[0])
        if any(map(kind.error, got)):
            events = [message for message in got if message.error() is not None]
            good = [message for message in got if message.error() is None]
        if len(self.places) == 1 and good:
            [place] = self.places.values()
            self._move(place, good, held)
        else:
            for key, run in groupby(good, key=_key):
                self._move(self.places[key], list(run), held)
        for event in events:
            self._event(event)
        return self._left()

    def _move(self, place: _RangePlace, good: list[Any], held: Bulk) -> None:
        """Add the messages of one partition."""
        offsets = list(map(type(good[0]).offset, good))
        last = offsets[-1]
        if offsets[0] < place.at or last >= place.upper or offsets != sorted(offsets):
            good, offsets = _sifted(place, good)
        if good:
            held.add(place.partition, good, offsets, headers=self.headers)
            place.at = offsets[-1] + 1
        if last >= place.upper:
            place.at, self.exact = place.upper, False

    def _event(self, message: Any) -> None:
        """Take note of a partition's end; raise an error."""
        error = message.error()
        code = error.code()
        place = self.places.get(_key(message))
        if code == _EOF and place is not None:
            place.at = max(place.at, min(message.offset(), place.upper))
            if message.offset() > place.upper:  # of that end the consumer is told once: it is not at `upper`
                self.exact = False
        elif code in _OUT_OF_RANGE and place is not None:
            raise self._out_of_range(place, error)
        elif code == _TOO_LARGE and place is not None:
            raise MessageTooLarge(partition=place.partition, offset=place.at, detail=error.str())
        elif place is None:
            self.client.hear(error)  # of a connection or of the group, which is not needed to read: `_look` judges it
        elif code != _EOF:
            doing, topics = f"read {place.partition}", (cluster.split(place.partition)[0],)
            raise explained(error, servers=self.settings.servers, doing=doing, topics=topics)

    def _look(self, idle: float) -> None:
        """Raise when there is no hope, after this number of seconds without a message."""
        errors = self.client.errors
        for said in errors.values():
            if _LIMIT in said:  # the connection is closed over it, so it is no message's error
                place = next(place for place in self.places.values() if place.at < place.upper)
                raise MessageTooLarge(partition=place.partition, offset=place.at, detail=said)
        for code in errors.keys() & REFUSALS:
            raise told(code, errors[code], servers=self.settings.servers, doing="connect")
        if idle > _LONG and not errors and not self.asked:
            self.asked = True
            if (gone := self._gone([place for place in self.places.values() if place.at < place.upper])) is not None:
                raise gone
        if (ALL_DOWN in errors and idle > _DOWN) or idle > PATIENCE:
            detail = unanswered(errors, f"nothing came of {self._some()} in {PATIENCE:g} seconds")
            raise told(ALL_DOWN, detail, servers=self.settings.servers, doing="read")

    def _out_of_range(self, place: _RangePlace, error: Any) -> Exception:
        """Return what it means that the broker does not have the next offset."""
        if (gone := self._gone([place])) is not None:
            return gone
        # It is there: the consumer goes by what it remembers of an older topic. The next one is a new one.
        return KafkaFailed(servers=self.settings.servers, doing=f"read {place.partition}", detail=error.str())

    def _gone(self, places: Sequence[_RangePlace]) -> Exception | None:
        """Ask the broker for the rest of ranges; return why it does not have one of them, None where it has all."""
        where = [cluster.split(place.partition) for place in places]
        with admin(self.settings) as client:
            asked = AskedCluster(client, self.settings.servers)
            lows, ends = asked.offsets(where, "earliest"), asked.offsets(where, "latest", committed=False)
        for place in places:
            low, end = lows.get(place.partition, place.at), ends.get(place.partition, place.upper)
            if (gone := outrun(self.what, place.partition, place.at, place.upper, low=low, end=end)) is not None:
                return gone
        return None

    def _some(self) -> str:
        waiting = [place.partition for place in self.places.values() if place.at < place.upper]
        return ", ".join(waiting[:3]) + (f" and {len(waiting) - 3} more" if len(waiting) > 3 else "")


def _key(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()


def _sifted(place: _RangePlace, good: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the messages that are in the range and beyond the reached position, each once, with their offsets."""
    kept, offsets, at = [], [], place.at
    for message in good:
        if at <= message.offset() < place.upper:
            kept.append(message)
            offsets.append(message.offset())
            at = message.offset() + 1
    return kept, offsets


def _sized(gulp: int, count: int, weight: int) -> int:
    """Return how many messages to ask for after a gulp of this number and weight.

    It grows step by step, since what follows may be heavier, and shrinks at once.

    >>> _sized(16, 16, 1600), _sized(500, 500, 50_000), _sized(64, 64, 64 << 20), _sized(4, 0, 0)
    (64, 500, 1, 4)
    """
    if not count:
        return gulp
    return max(1, min(GULP, gulp * _FASTER, GULP_BYTES * count // max(1, weight)))


def _weight(headers: list[tuple[str, bytes | None]] | str) -> int:
    """Return about what the headers of a message take."""
    if isinstance(headers, str):
        return len(headers)
    return sum(_HEADER + len(name) + len(value or b"") for name, value in headers)
