"""Functions on single records, lifted to batches that are lists.

The operators see whole batches. If a batch is a list of records, the functions here turn one on a record into one on
a batch, to be given to `Stream.map`, `partition`, `aggregate`, `state_machine` and `exchange`. A chain is one
function: one operator and one pass over the batch, however long the chain.

Invariant: a batch is never changed in place, as every reader of a stream sees the same object; and no record is lost
to an exception: a function that raises, StopIteration included, raises out of the batch.

>>> from tidegauge.dataflow import INT, Worker, records
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     lines, stream = scope.input("lines")
...     words = stream.map(records.flat_map(str.split).map(str.lower).filter(str.isalpha))
...     _ = words.inspect(print)
>>> lines.send(["Ebb and flood", "2 tides"]); lines.close()
>>> while worker.step(): pass
(0,) ['ebb', 'and', 'flood', 'tides']
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from operator import index
from typing import Any, Generic, SupportsIndex, TypeAlias, TypeVar
from zlib import crc32

from tidegauge.errors.dataflow import UnroutableKey

__all__ = ["Key", "RecordFunction", "filter", "flat_map", "fold_by", "map", "route", "split", "stateful", "worker_of"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

Key: TypeAlias = SupportsIndex | str | bytes
"""What says where a record belongs: an integer, a text or bytes."""


@dataclass(frozen=True, slots=True)
class RecordFunction(Generic[A, B]):
    """A function from a list of records to another, to be called or to be chained.

    over: the same on an iterable, lazily, so that a chain makes no list between its links.
    """

    over: Callable[[Iterable[A]], Iterable[B]]

    def __call__(self, batch: Iterable[A]) -> list[B]:
        """Return the records that come of those in `batch`, in their sequence."""
        return list(self.over(batch))

    def map(self, function: Callable[[B], C]) -> RecordFunction[A, C]:
        """Put `function(record)` for each record."""
        return RecordFunction(lambda batch: (function(record) for record in self.over(batch)))

    def filter(self, keep: Callable[[B], object]) -> RecordFunction[A, B]:
        """Keep the records for which `keep(record)` is true."""
        return RecordFunction(lambda batch: (record for record in self.over(batch) if keep(record)))

    def flat_map(self, function: Callable[[B], Iterable[C]]) -> RecordFunction[A, C]:
        """Put all of `function(record)` for each record."""
        return RecordFunction(lambda batch: (result for record in self.over(batch) for result in function(record)))


def map(function: Callable[[A], B]) -> RecordFunction[A, B]:  # noqa: A001 - said as records.map
    """Put `function(record)` for each record.

    >>> map(len)(["ebb", "flood"]), map(len).filter(lambda n: n > 3)(["ebb", "flood"])
    ([3, 5], [5])
    """
    start: RecordFunction[A, A] = RecordFunction(_itself)
    return start.map(function)


def filter(keep: Callable[[A], object]) -> RecordFunction[A, A]:  # noqa: A001 - said as records.filter
    """Keep the records for which `keep(record)` is true.

    >>> filter(str.isalpha)(["ebb", "7"])
    ['ebb']
    """
    start: RecordFunction[A, A] = RecordFunction(_itself)
    return start.filter(keep)


def flat_map(function: Callable[[A], Iterable[B]]) -> RecordFunction[A, B]:
    """Put all of `function(record)` for each record.

    >>> flat_map(range)([1, 0, 3])
    [0, 0, 1, 2]
    """
    start: RecordFunction[A, A] = RecordFunction(_itself)
    return start.flat_map(function)


def _itself(batch: Iterable[A]) -> Iterable[A]:
    return batch


def split(function: Callable[[A], tuple[int, B]]) -> Callable[[Iterable[A]], list[tuple[int, list[B]]]]:
    """Return what `Stream.partition` takes, of a function from a record to `(output, record)`.

    >>> split(lambda n: (n % 2, 10 * n))([1, 2, 3])
    [(1, [10, 30]), (0, [20])]
    """

    def pieces(batch: Iterable[A]) -> list[tuple[int, list[B]]]:
        found: dict[int, list[B]] = {}
        for record in batch:
            output, result = function(record)
            found.setdefault(output, []).append(result)
        return list(found.items())

    return pieces


def fold_by(
    key: Callable[[A], K], zero: Callable[[], S], fold: Callable[[S, A], S]
) -> Callable[[dict[K, S], Iterable[A]], dict[K, S]]:
    """Return what `Stream.aggregate` takes, beside `dict`: a state for each key, `fold(state, record)` its next one.

    >>> fold_by(lambda n: n % 2, int, lambda total, n: total + n)({}, [1, 2, 3])
    {1: 4, 0: 2}
    """

    def folded(states: dict[K, S], batch: Iterable[A]) -> dict[K, S]:
        for record in batch:
            at = key(record)
            states[at] = fold(states[at] if at in states else zero(), record)
        return states

    return folded


def stateful(
    key: Callable[[A], K], step: Callable[[S | None, A], tuple[S | None, Iterable[B]]]
) -> Callable[[dict[K, S], Iterable[A]], tuple[dict[K, S], list[B]]]:
    """Return what `Stream.state_machine` takes, beside `dict`: a state for each key.

    step: from the state of the record's key, None when it has none, and the record, to the next state and what to
    send. None for the next state forgets the key.

    >>> def running(total, n):
    ...     return (total or 0) + n, [(total or 0) + n]
    >>> stateful(lambda n: n % 2, running)({}, [1, 2, 3])
    ({1: 4, 0: 2}, [1, 2, 4])
    """

    def stepped(states: dict[K, S], batch: Iterable[A]) -> tuple[dict[K, S], list[B]]:
        sent: list[B] = []
        for record in batch:
            at = key(record)
            state, results = step(states.get(at), record)
            if state is None:
                states.pop(at, None)
            else:
                states[at] = state
            sent.extend(results)
        return states, sent

    return stepped


def route(key: Callable[[A], Key]) -> Callable[[Iterable[A], int], list[tuple[int, list[A]]]]:
    """Return what `Stream.exchange` takes: each record goes to the worker that its key belongs to.

    Raises UnroutableKey for a key that is neither an integer, nor text, nor bytes.

    >>> route(lambda n: n)([1, 2, 3, 4], 3)
    [(1, [1, 4]), (2, [2]), (0, [3])]
    """

    def pieces(batch: Iterable[A], peers: int) -> list[tuple[int, list[A]]]:
        found: dict[int, list[A]] = {}
        of_text: dict[str, list[A]] = {}  # a text comes again and again, and to hash it is most of the work
        for record in batch:
            at = key(record)
            if type(at) is not str:
                found.setdefault(worker_of(at, peers), []).append(record)
            elif at in of_text:
                of_text[at].append(record)
            else:
                of_text[at] = found.setdefault(worker_of(at, peers), [])
                of_text[at].append(record)
        return list(found.items())

    return pieces


def worker_of(key: Key, peers: int) -> int:
    """Return the worker that a key belongs to: the same in every process, which Python's own `hash` is not.

    An integer goes to its remainder; text goes where its UTF-8 goes, and bytes go to the remainder of their CRC-32.
    Raises UnroutableKey for any other key.

    >>> worker_of(7, 3), worker_of("ebb", 3) == worker_of(b"ebb", 3)
    (1, True)
    """
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass")) % peers
    if isinstance(key, bytes):
        return crc32(key) % peers
    try:
        return index(key) % peers
    except TypeError:
        raise UnroutableKey(key=_shown(key), problem=f"it is of type {type(key).__name__}") from None


def _shown(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 80 else f"{text[:79]}…"
