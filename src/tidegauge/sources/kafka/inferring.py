"""The columns of topics whose format declares none: what the first messages of a partition tell.

Partitions are looked at in the order of their names, until the messages of one tell all columns. Of each these are
the first that the broker has, wherever the source begins: at most `SAMPLE`, of about `SAMPLE_BYTES`.

Invariant: nothing is bound by it, so nothing is lost here. Messages that disappear under the sample (retention takes
them, or the topic is recreated) are no loss and no fault of the source: the next look takes a new sample.

>>> listing = TopicListing(ids={"t": "A"}, lows={"t-0": 0, "t-1": 4}, ends={"t-0": 0, "t-1": 9})
>>> samples(listing)
[Range(partition='t-1', lower=4, upper=9)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.kafka import NothingToInfer
from tidegauge.kafka.settings import Settings
from tidegauge.sources.kafka.inquiry import Inquiry
from tidegauge.sources.kafka.planning import OUTRUN, Range
from tidegauge.sources.kafka.probing import TopicListing
from tidegauge.sources.kafka.reading import Bulk, messages

__all__ = ["inferred", "sample", "samples"]

SAMPLE: Final = 1000
"""Messages from which columns are inferred, at most."""
SAMPLE_BYTES: Final = 16 << 20
"""The largest number of them with this many bytes together."""


def samples(listing: TopicListing) -> list[Range]:
    """Return where the first messages of each partition are that has any."""
    lows = listing.lows
    return [
        Range(partition, lows[partition], min(end, lows[partition] + SAMPLE))
        for partition, end in sorted(listing.ends.items())
        if lows[partition] < end
    ]


def inferred(
    listing: TopicListing,
    take: Callable[[Range], list[Bulk]],
    columns: Callable[[Sequence[bytes | None], Sequence[bytes | None]], pa.Schema | None],
) -> pa.Schema | None:
    """Return the columns that the first messages tell, or None where the next look is to see.

    take: returns the messages of a range. columns: what keys and values tell, None if that is not enough.

    Raises `NothingToInfer`, and what `take` and `columns` raise, but no loss. The first definite error counts.
    """
    wrong: TidegaugeError | None = None
    there, gone = samples(listing), False
    for wanted in there:
        try:
            found = take(wanted)
            told = columns([k for bulk in found for k in bulk.keys], [v for bulk in found for v in bulk.values])
            if told is not None:
                return told
        except OUTRUN:
            gone = True
        except Transient:
            raise
        except TidegaugeError as error:
            wrong = wrong or error
    if gone or not there:
        return None  # nothing is bound before there is a message; the next probe looks again
    raise wrong or NothingToInfer(topics=sorted(listing.ids))


def sample(settings: Settings, group: str, wanted: Range, what: Inquiry) -> list[Bulk]:
    """Return the first messages of a range. Raises as `messages` does."""
    found: list[Bulk] = []
    with closing(messages(settings, group, [wanted], what)) as bulks:
        for bulk in bulks:
            found.append(bulk)
            if sum(one.bytes for one in found) >= SAMPLE_BYTES:
                break
    return found
