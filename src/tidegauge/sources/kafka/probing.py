"""How far the topics are: what the broker is asked on each tick, and what may be bound, given its answers.

Three requests, however many partitions there are: the topics with their ids, and where all partitions begin and end.
The probe keeps nothing between two ticks but connections; the bindings tell whether upstream is still the same, so a
recreated topic, or a partition that lost records, is found after a restart as well.

The decision is pure. Let `b` be where a partition is bound, `s` the offset at which the source begins in it, and
`[low, end)` what there is. The records below `s` are not part of the source. So its next record is at
`n = max(b, min(s, end))`, and:

    low <= n          it has `end - n` records that are not bound
    low > n           the records `[max(n, s), low)`, if any, are gone before they were bound: they are lost
    end < b           the topic is not the one that is bound: it was recreated, or the cluster lost what we had read

A partition that the broker does not tell of stays where it is. So does one of a topic that is not listed: an absence
in one listing is no deletion.

*A new partition of a known topic enters whole*, at one epoch, from offset 0: its first records may belong together
with others that went to other partitions, as when a topic of keys is given more partitions. So the limit does not cut
it; it takes its records first, and the others share the rest. If it alone is larger than the limit, the epoch is that
large, and the others wait for the next one: an epoch may be large, a cut would be for good.

Invariant: no partition goes back behind its bound position, and an answer that is missing moves nothing. Only the
broker itself reports anything definite (deleted, recreated, lost): a deletion is confirmed by `CONFIRMATIONS` answers
in a row.

>>> known = Bound(frontier=Frontier({"t-0": 5}), details={"t-0": {"topic_id": "A", "start": 2}})
>>> listing = TopicListing(ids={"t": "A"}, lows={"t-0": 0, "t-1": 0}, ends={"t-0": 9, "t-1": 3})
>>> found = admitted(known, listing, {"t-1": 0}, whole={"t-1"}, limit=5)
>>> found.upper, found.more, dict(found.details)
(Frontier({'t-0': 7, 't-1': 3}), True, {'t-1': {'topic_id': 'A', 'start': 0}})
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from tidegauge.errors.base import Definite
from tidegauge.errors.kafka import NoTopicMatches, TopicDeleted, TopicRecreated, TopicUnknown
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import EndTakenBack, RecordsLost
from tidegauge.kafka import cluster
from tidegauge.remap.binding import Bound, Detail
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.mint import admit
from tidegauge.sources.kafka.asking import Cluster
from tidegauge.sources.kafka.inquiry import Inquiry, Start, Topics

__all__ = [
    "CONFIRMATIONS",
    "Admission",
    "TopicListing",
    "admitted",
    "behind",
    "changed",
    "confirm",
    "confirmed",
    "meant",
    "newcomers",
    "other_ids",
    "regressed",
    "survey",
]

CONFIRMATIONS: Final = 3
"""How often a broker has to say that a topic with bound records does not exist."""


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


def meant(bound: Bound, topics: Topics) -> set[str]:
    """Return the topics that are bound, without those that the source no longer reads."""
    known = {cluster.split(partition)[0] for partition in bound.details}
    return known.intersection(topics.names or topics.among(known))


def other_ids(bound: Bound, ids: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the topics whose id is not the one that is bound, each with both."""
    found: dict[str, tuple[str, str]] = {}
    for partition, detail in bound.details.items():
        topic = cluster.split(partition)[0]
        known, now = str(detail["topic_id"]), ids.get(topic, "")
        if known and now and known != now:
            found[topic] = (known, now)
    return found


def regressed(bound: Bound, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the partitions that end before their bound position, each with both."""
    bounds = dict(bound.frontier.items())
    return {p: (known, end) for p, end in ends.items() if end < (known := bounds.get(p, 0))}


def behind(shown: Frontier, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the partitions that end before they did, each with the records that are gone.

    >>> behind(Frontier({"t-0": 9, "t-1": 4}), {"t-0": 7, "t-1": 4, "t-2": 1})
    {'t-0': (7, 9)}
    """
    ended = dict(shown.items())
    return {partition: (end, was) for partition, end in ends.items() if end < (was := ended.get(partition, 0))}


def newcomers(bound: Bound, listing: TopicListing) -> tuple[set[str], set[str]]:
    """Return the partitions that are not known: those of topics that are, and those of topics that are not."""
    known = {cluster.split(partition)[0] for partition in bound.details}
    new = listing.ends.keys() - bound.details.keys()
    grown = {partition for partition in new if cluster.split(partition)[0] in known}
    return grown, new - grown


def admitted(
    bound: Bound, listing: TopicListing, starts: Mapping[str, int], *, whole: Collection[str], limit: int
) -> Admission:
    """Decide. `starts` has where each partition begins that is not known; `whole` those that are not cut.

    The limit is shared out by max-min fairness (`admit`).
    """
    bounds, lost = dict(bound.frontier.items()), {}
    begins = dict(bounds)
    for partition, end in listing.ends.items():
        detail = bound.details.get(partition)
        start = starts[partition] if detail is None else int(detail["start"])
        begin = max(bounds.get(partition, 0), min(start, end))
        if (low := listing.lows.get(partition, 0)) > begin:
            if low > (first := max(begin, start)):
                lost[partition] = (first, low)
            begin = max(begin, min(low, end))
        begins[partition] = begin
    there = bound.frontier.join(Frontier(listing.ends))
    entered = Frontier({**begins, **{partition: listing.ends[partition] for partition in whole}})
    left = limit - sum(listing.ends[partition] - begins[partition] for partition in whole)
    upper = admit(entered, there, left) if left > 0 else entered
    details: dict[str, Detail] = {
        partition: {"topic_id": listing.ids[cluster.split(partition)[0]], "start": starts[partition]}
        for partition in sorted(listing.ends.keys() - bound.details.keys())
    }
    return Admission(upper, there, details, lost, upper != there)


def survey(asked: Cluster, what: Inquiry, bound: Bound, *, now: datetime) -> tuple[Admission, TopicListing, str]:
    """Ask the broker; return what may be bound, what it said, and a note for people.

    Raises `TopicUnknown`, `NoTopicMatches`, `TopicDeleted`, `TopicRecreated`, `UpstreamRecreated`, `RecordsLost`,
    `EndTakenBack`, and what `tidegauge.kafka` raises.
    """
    known = meant(bound, what.topics)
    there, note = _topics(asked, what, known)
    if gone := sorted(known - there.keys()):
        raise TopicDeleted(source=what.name, topics=gone, servers=what.servers)
    listing = _listing(asked, what, there)
    if (error := changed(asked, what, bound, listing)) is not None:
        raise error
    grown, new = newcomers(bound, listing)
    starts = dict.fromkeys(grown, 0)
    if new:
        first = bound.state is None and bound.incarnation == 0
        start = what.start if first else Start(word="earliest")
        mine = {p: listing.ends[p] for p in new}
        starts |= start.resolve({p: listing.lows[p] for p in mine}, mine, now=now, at=_asking(asked))
    back = taken_back(asked, what, bound, listing)
    found = replace(admitted(bound, listing, starts, whole=grown, limit=what.limit), taken_back=back)
    if found.lost and what.stop:
        partition, (begin, low) = min(found.lost.items())
        end = listing.ends[partition]
        raise RecordsLost(source=what.name, partition=partition, asked=begin, there=low, end=end)
    if quiet := sum(topic.partitions for topic in there.values()) - len(listing.ends):
        note = "; ".join(filter(None, [note, f"{quiet} partitions have no leader at present"]))
    return found, listing, note


def _topics(asked: Cluster, what: Inquiry, known: set[str]) -> tuple[dict[str, cluster.Topic], str]:
    """Return the topics that are there; those that are known have to be confirmed to be missing."""
    if what.topics.names:
        wanted = {*what.topics.names}
    else:
        visible = asked.names()
        wanted = {*what.topics.among(visible)} | known
        if not wanted:
            raise NoTopicMatches(servers=what.servers, pattern=what.topics.pattern, count=len(visible))
    there = asked.described(wanted)
    there |= confirmed(asked, known - there.keys())
    missing = sorted(wanted - there.keys() - known)
    if missing and not known:
        raise TopicUnknown(servers=what.servers, topics=missing)
    return there, f"waiting: there is no topic {', '.join(missing)}" if missing else ""


def confirmed(asked: Cluster, missing: set[str]) -> dict[str, cluster.Topic]:
    """Return those of topics that a broker did not know that it knows when it is asked again."""
    there: dict[str, cluster.Topic] = {}
    for _again in range(CONFIRMATIONS - 1):
        if missing <= there.keys():
            break
        asked.wait()
        there |= asked.described(missing - there.keys())
    return there


def _listing(asked: Cluster, what: Inquiry, there: Mapping[str, cluster.Topic]) -> TopicListing:
    places = [(name, number) for name, topic in there.items() for number in range(topic.partitions)]
    lows = asked.offsets(places, "earliest")
    ends = asked.offsets(places, "latest", committed=what.committed)
    both = lows.keys() & ends.keys()
    return TopicListing(
        {name: topic.id for name, topic in there.items()}, lows, {p: ends[p] for p in ends if p in both}
    )


def changed(asked: Cluster, what: Inquiry, bound: Bound, listing: TopicListing) -> Definite | None:
    """Return the error of topics that are not those that are bound, None where all are.

    The end of the committed records can be behind the bound position when a transaction is open and the source read
    uncommitted records before: that is no regression, so the end of all records is asked for then.
    """
    ids = other_ids(bound, listing.ids)
    behind = {p: both for p, both in regressed(bound, listing.ends).items() if cluster.split(p)[0] not in ids}
    if behind and what.committed:
        places = [cluster.split(partition) for partition in behind]
        ends = asked.offsets(places, "latest", committed=False)
        behind = {p: (known, ends.get(p, known)) for p, (known, _) in behind.items() if ends.get(p, known) < known}
    if not ids and not behind:
        return None
    known = [f"{topic} with the id {was}" for topic, (was, _) in sorted(ids.items())]
    known += [f"{partition} with records to {was}" for partition, (was, _) in sorted(behind.items())]
    found = [f"{topic} with the id {now}" for topic, (_, now) in sorted(ids.items())]
    found += [f"{partition} with records to {now}" for partition, (_, now) in sorted(behind.items())]
    other = {*ids, *(cluster.split(partition)[0] for partition in behind)}
    if others := sorted(meant(bound, what.topics) - other):
        return TopicRecreated(source=what.name, topics=sorted(other), others=others)
    return UpstreamRecreated(source=what.name, known="; ".join(known[:5]), found="; ".join(found[:5]))


def confirm(asked: Cluster, what: Inquiry, bound: Bound) -> None:
    """Ask the broker for the ids of the bound topics alone.

    Raises `TopicDeleted` for one that is gone: another one may have come and gone under its name meanwhile.
    Raises `UpstreamRecreated` and `TopicRecreated`.
    """
    if not (known := meant(bound, what.topics)):
        return
    there = asked.described(known)
    there |= confirmed(asked, known - there.keys())
    if gone := sorted(known - there.keys()):
        raise TopicDeleted(source=what.name, topics=gone, servers=what.servers)
    ids = {name: topic.id for name, topic in there.items()}
    if (error := changed(asked, what, bound, TopicListing(ids, {}, {}))) is not None:
        raise error


def taken_back(asked: Cluster, what: Inquiry, bound: Bound, listing: TopicListing) -> dict[str, tuple[int, int]]:
    """Return what partitions had shown at the last look, and have no longer, although nothing of it is bound.

    Raises `EndTakenBack` where a loss ends the source. The end of the committed records alone may go back while
    another broker takes over: then the end of all records is asked for.
    """
    shown = ORIGIN if bound.last is None else bound.last.end
    back = behind(shown, listing.ends)
    if back and what.committed:
        places = [cluster.split(partition) for partition in back]
        back = behind(shown, asked.offsets(places, "latest", committed=False))
    if back and what.stop:
        partition, (end, seen) = min(back.items())
        raise EndTakenBack(place=f"partition {partition} of source {what.name!r}", seen=seen, end=end)
    return back


def _asking(asked: Cluster) -> Callable[[Iterable[str], int], Mapping[str, int]]:
    def at(partitions: Iterable[str], moment: int) -> Mapping[str, int]:
        # Of all records: an open transaction hides those after its first one, and a source would begin behind them.
        return asked.offsets(map(cluster.split, partitions), moment, committed=False)

    return at
