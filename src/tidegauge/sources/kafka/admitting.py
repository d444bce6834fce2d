"""The offsets to bind now, given the broker's answer and the bindings: a pure decision.

Let `b` be where a partition is bound, `s` the offset at which the source begins in it, and `[low, end)` what there
is. The records below `s` are not part of the source. So its next record is at `n = max(b, min(s, end))`, and:

    low <= n          it has `end - n` records that are not bound
    low > n           the records `[n, low)` are gone before they were bound: they are lost, and are said to be
    end < b           the topic is not the one that is bound: it was recreated, or the cluster lost what we had read

A partition that the broker does not tell of stays where it is. So does one of a topic that is not listed: an absence
in one listing is no deletion.

*A new partition of a known topic enters whole*, at one epoch, from offset 0: its first records may belong together
with others that went to other partitions, as when a topic of keys is given more partitions. So the limit does not cut
it; it takes its records first, and the others share the rest. If it alone is larger than the limit, the epoch is that
large, and the others wait for the next one: an epoch may be large, a cut would be for good.

Invariant: no partition goes back behind its bound position.

>>> known = Bound(frontier=Frontier({"t-0": 5}), details={"t-0": {"topic_id": "A", "start": 2}})
>>> listing = TopicListing(ids={"t": "A"}, lows={"t-0": 0, "t-1": 0}, ends={"t-0": 9, "t-1": 3})
>>> found = admitted(known, listing, {"t-1": 0}, whole={"t-1"}, limit=5)
>>> found.upper, found.more, dict(found.details)
(Frontier({'t-0': 7, 't-1': 3}), True, {'t-1': {'topic_id': 'A', 'start': 0}})
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidegauge.kafka.cluster import split
from tidegauge.remap.binding import Bound, Detail
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.mint import admit

__all__ = ["Admission", "TopicListing", "admitted", "behind", "newcomers", "other_ids", "regressed"]


@dataclass(frozen=True, slots=True)
class TopicListing:
    """What the broker said: the ids of topics, "" where it has none, and where partitions begin and end."""

    ids: Mapping[str, str]
    lows: Mapping[str, int]
    ends: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Admission:
    """What may be bound: a frontier, facts of partitions that are new, and whether there is more.

    end: upstream's end. lost: records that were gone before they were bound, `(lower, upper)` by partition; `upper`
    passes it. taken_back: records that partitions had shown and have no longer; other records may come to stand
    there.
    """

    upper: Frontier
    end: Frontier
    details: Mapping[str, Detail]
    lost: Mapping[str, tuple[int, int]]
    more: bool
    taken_back: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def other_ids(bound: Bound, ids: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the topics whose id is not the one that is bound, each with both."""
    found: dict[str, tuple[str, str]] = {}
    for partition, detail in bound.details.items():
        topic = split(partition)[0]
        known, now = str(detail["topic_id"]), ids.get(topic, "")
        if known and now and known != now:
            found[topic] = (known, now)
    return found


def regressed(bound: Bound, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the partitions that end before their bound position, each with both."""
    bounds = bound.frontier
    return {p: (bounds[p], end) for p, end in ends.items() if end < bounds[p]}


def behind(shown: Frontier, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the partitions that end before they did, each with the records that are gone.

    >>> behind(Frontier({"t-0": 9, "t-1": 4}), {"t-0": 7, "t-1": 4, "t-2": 1})
    {'t-0': (7, 9)}
    """
    return {partition: (end, shown[partition]) for partition, end in ends.items() if end < shown[partition]}


def newcomers(bound: Bound, listing: TopicListing) -> tuple[set[str], set[str]]:
    """Return the partitions that are not known: those of topics that are, and those of topics that are not."""
    known = {split(partition)[0] for partition in bound.details}
    new = listing.ends.keys() - bound.details.keys()
    grown = {partition for partition in new if split(partition)[0] in known}
    return grown, new - grown


def admitted(
    bound: Bound, listing: TopicListing, starts: Mapping[str, int], *, whole: Collection[str], limit: int
) -> Admission:
    """Decide. `starts` has where each partition begins that is not known; `whole` those that are not cut.

    The limit is shared out by max-min fairness (`admit`).
    """
    begins, lost = dict(bound.frontier), {}
    for partition, end in listing.ends.items():
        detail = bound.details.get(partition)
        start = starts[partition] if detail is None else int(detail["start"])
        begin = max(bound.frontier[partition], min(start, end))
        if (low := listing.lows.get(partition, 0)) > begin:
            lost[partition] = (begin, low)
            begin = max(begin, min(low, end))
        begins[partition] = begin
    there = bound.frontier.join(Frontier(listing.ends))
    entered = Frontier({**begins, **{partition: listing.ends[partition] for partition in whole}})
    left = limit - sum(listing.ends[partition] - begins[partition] for partition in whole)
    upper = admit(entered, there, left) if left > 0 else entered
    details: dict[str, Detail] = {
        partition: {"topic_id": listing.ids[split(partition)[0]], "start": starts[partition]}
        for partition in sorted(listing.ends.keys() - bound.details.keys())
    }
    return Admission(upper, there, details, lost, upper != there)
