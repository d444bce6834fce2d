"""Streams of records, and the ways that one stream may come: for laws that no cut may break.

Invariant: whatever way it comes, each partition's records come in their sequence, each once.

>>> from hypothesis import given, settings
>>> @settings(max_examples=10, derandomize=True)
... @given(cut_twice(record_streams(), arrivals))
... def what_comes_does_not_depend_on_the_cut(ways):
...     one, other = (sorted(record for batch in batches for record in batch) for batches in ways)
...     assert one == other
>>> what_comes_does_not_depend_on_the_cut()
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import cycle, pairwise
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st

from tidegauge.errors.testing import InvalidStrategy
from tidegauge.testing.strategies.arguments import between, sizes, strategies
from tidegauge.testing.strategies.frontiers import FEW

__all__ = ["StreamRecord", "arrivals", "cut_twice", "cuts", "record_streams"]

Whole = TypeVar("Whole")
Pieces = TypeVar("Pieces")


class StreamRecord(NamedTuple):
    """A record of a partition at its position, with whatever it says."""

    partition: str
    position: int
    value: Any


def record_streams(
    *,
    partitions: st.SearchStrategy[str] = FEW,
    values: st.SearchStrategy[Any] = st.integers(0, 9),  # noqa: B008 - a strategy is a value
    min_size: int = 0,
    max_size: int = 20,
    max_hole: int = 3,
) -> st.SearchStrategy[list[StreamRecord]]:
    """Streams of records: in each partition positions ascend from 0 up, with holes, as compacted topics have them.

    max_hole: the largest number of positions that are missing before a record.
    """
    sizes("record_streams", min_size, max_size)
    between("record_streams", "max_hole", max_hole)
    strategies("record_streams", partitions=partitions, values=values)
    steps = st.tuples(partitions, st.integers(0, max_hole), values)
    return _streams(st.lists(steps, min_size=min_size, max_size=max_size))


def cuts(whole: Any, *, max_size: int = 6) -> st.SearchStrategy[list[Any]]:
    """Ways to cut a sequence into pieces that make it up again, some of them empty.

    whole: anything with a length and slices: a list, bytes, an Arrow batch or table. max_size: how many cuts.

    >>> from hypothesis import find, settings
    >>> steady = settings(derandomize=True)  # the same examples each time
    >>> find(cuts(b"tide"), lambda pieces: len(pieces) == 3, settings=steady)
    [b'', b'', b'tide']
    """
    sizes("cuts", 0, max_size)
    try:
        whole[: len(whole)]
    except (TypeError, KeyError):
        raise InvalidStrategy(
            strategy="cuts", parameter="whole", value=repr(whole), expected="a sequence, with a length and slices"
        ) from None
    return _cut(whole, st.lists(st.integers(0, len(whole)), max_size=max_size))


def arrivals(stream: Sequence[StreamRecord], *, max_size: int = 6) -> st.SearchStrategy[list[list[StreamRecord]]]:
    """The ways that a stream may come: its partitions interleaved in any way, and cut into batches, some empty.

    max_size: how many cuts.
    """
    sizes("arrivals", 0, max_size)
    if not all(isinstance(record, StreamRecord) for record in stream):
        raise InvalidStrategy(
            strategy="arrivals", parameter="stream", value=repr(stream), expected="a list of StreamRecord"
        )
    partitions = len({record.partition for record in stream})
    turns = st.lists(st.integers(0, max(partitions - 1, 0)), max_size=len(stream))
    return _arrivals(stream, turns, st.lists(st.integers(0, len(stream)), max_size=max_size))


def cut_twice(
    wholes: st.SearchStrategy[Whole], cut: Callable[[Whole], st.SearchStrategy[Pieces]]
) -> st.SearchStrategy[tuple[Pieces, Pieces]]:
    """One whole, cut in two ways: a function of the whole must make the same of both.

    cut: `cuts` or `arrivals`, or a function of your own from a whole to a strategy of its pieces.
    """
    strategies("cut_twice", wholes=wholes)
    if not callable(cut):
        raise InvalidStrategy(
            strategy="cut_twice", parameter="cut", value=repr(cut), expected="a function such as cuts or arrivals"
        )
    return wholes.flatmap(lambda whole: st.tuples(cut(whole), cut(whole)))


@st.composite
def _streams(draw: st.DrawFn, steps: st.SearchStrategy[list[tuple[str, int, Any]]]) -> list[StreamRecord]:
    following: dict[str, int] = {}
    found: list[StreamRecord] = []
    for partition, hole, value in draw(steps):
        position = following.get(partition, 0) + hole
        following[partition] = position + 1
        found.append(StreamRecord(partition, position, value))
    return found


@st.composite
def _cut(draw: st.DrawFn, whole: Any, places: st.SearchStrategy[list[int]]) -> list[Any]:
    return [whole[a:b] for a, b in pairwise([0, *sorted(draw(places)), len(whole)])]


@st.composite
def _arrivals(
    draw: st.DrawFn,
    stream: Sequence[StreamRecord],
    turns: st.SearchStrategy[list[int]],
    places: st.SearchStrategy[list[int]],
) -> list[list[StreamRecord]]:
    return draw(_cut(_interleaved(stream, draw(turns)), places))


def _interleaved(stream: Sequence[StreamRecord], picks: Sequence[int]) -> list[StreamRecord]:
    """Let the partitions take turns. Each pick is how many of those that would come first have to wait.

    Picks are used again and again; with none, or with zeros, the stream comes in its own sequence.
    """
    waiting: dict[str, deque[tuple[int, StreamRecord]]] = defaultdict(deque)
    for place, record in enumerate(stream):
        waiting[record.partition].append((place, record))
    found: list[StreamRecord] = []
    for _, pick in zip(stream, cycle(picks or [0]), strict=False):
        first = sorted(waiting, key=lambda partition: waiting[partition][0][0])
        chosen = first[pick % len(first)]
        found.append(waiting[chosen].popleft()[1])
        if not waiting[chosen]:
            del waiting[chosen]
    return found
