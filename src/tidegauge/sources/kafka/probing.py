"""How far the topics are: what the broker is asked on each tick, and what follows from its answers.

Three requests, however many partitions there are: the topics with their ids, and where all partitions begin and end.
The probe keeps nothing between two ticks but connections; the bindings tell whether upstream is still the same, so a
recreated topic, or a partition that lost records, is found after a restart as well.

Invariant: an answer that is missing moves nothing. Only the broker itself reports anything definite (deleted,
recreated, lost): a deletion is confirmed by `CONFIRMATIONS` answers in a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tidegauge.errors.base import Definite
from tidegauge.errors.kafka import NoTopicMatches, RecordsLost, TopicDeleted, TopicRecreated, TopicUnknown
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import EndTakenBack
from tidegauge.kafka import cluster
from tidegauge.kafka.clients import Client
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import ORIGIN
from tidegauge.sources.kafka.admitting import (
    Admission,
    TopicListing,
    admitted,
    behind,
    newcomers,
    other_ids,
    regressed,
)
from tidegauge.sources.kafka.start import Start
from tidegauge.sources.kafka.topics import Topics

__all__ = ["CONFIRMATIONS", "Inquiry", "changed", "confirmed", "survey"]

CONFIRMATIONS: Final = 3
"""How often a broker has to say that a topic with bound records does not exist."""
_BETWEEN: Final = 0.3


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What to ask, and what of: `name` is the source's, for people; `stop`: whether a loss ends it."""

    name: str
    servers: str
    topics: Topics
    start: Start
    limit: int
    committed: bool
    stop: bool


def survey(client: Client, what: Inquiry, bound: Bound, *, now: datetime) -> tuple[Admission, TopicListing, str]:
    """Ask the broker; return what may be bound, what it said, and a note for people.

    Raises `TopicUnknown`, `NoTopicMatches`, `TopicDeleted`, `TopicRecreated`, `UpstreamRecreated`, `RecordsLost`,
    `EndTakenBack`, and what `tidegauge.kafka` raises.
    """
    known = {topic for partition in bound.details if what.topics.selects(topic := cluster.split(partition)[0])}
    there, note = _topics(client, what, known)
    if gone := sorted(known - there.keys()):
        raise TopicDeleted(source=what.name, topics=gone, servers=what.servers)
    listing = _listing(client, what, there)
    if (error := changed(client, what, bound, listing)) is not None:
        raise error
    grown, new = newcomers(bound, listing)
    starts = dict.fromkeys(grown, 0)
    if new:
        first = bound.state is None and bound.incarnation == 0
        start = what.start if first else Start(word="earliest")
        mine = {p: listing.ends[p] for p in new}
        starts |= start.resolve({p: listing.lows[p] for p in mine}, mine, now=now, at=_asking(client, what))
    back = taken_back(client, what, bound, listing)
    found = replace(admitted(bound, listing, starts, whole=grown, limit=what.limit), taken_back=back)
    if found.lost and what.stop:
        partition, (asked, low) = min(found.lost.items())
        end = listing.ends[partition]
        raise RecordsLost(source=what.name, partition=partition, asked=asked, there=low, end=end)
    if quiet := sum(topic.partitions for topic in there.values()) - len(listing.ends):
        note = "; ".join(filter(None, [note, f"{quiet} partitions have no leader at present"]))
    return found, listing, note


def _topics(client: Client, what: Inquiry, known: set[str]) -> tuple[dict[str, cluster.Topic], str]:
    """Return the topics that are there; those that are known have to be confirmed to be missing."""
    if what.topics.names:
        wanted = {*what.topics.names}
    else:
        visible = cluster.names(client, servers=what.servers)
        wanted = {*what.topics.among(visible)} | known
        if not wanted:
            raise NoTopicMatches(servers=what.servers, pattern=what.topics.pattern, count=len(visible))
    there = cluster.described(client, wanted, servers=what.servers)
    there |= confirmed(client, known - there.keys(), servers=what.servers)
    missing = sorted(wanted - there.keys() - known)
    if missing and not known:
        raise TopicUnknown(servers=what.servers, topics=missing)
    return there, f"waiting: there is no topic {', '.join(missing)}" if missing else ""


def confirmed(client: Client, missing: set[str], *, servers: str) -> dict[str, cluster.Topic]:
    """Return those of topics that a broker did not know that it knows when it is asked again."""
    there: dict[str, cluster.Topic] = {}
    for _again in range(CONFIRMATIONS - 1):
        if missing <= there.keys():
            break
        time.sleep(_BETWEEN)
        there |= cluster.described(client, missing - there.keys(), servers=servers)
    return there


def _listing(client: Client, what: Inquiry, there: Mapping[str, cluster.Topic]) -> TopicListing:
    places = [(name, number) for name, topic in there.items() for number in range(topic.partitions)]
    lows = cluster.offsets(client, places, "earliest", servers=what.servers)
    ends = cluster.offsets(client, places, "latest", servers=what.servers, committed=what.committed)
    both = lows.keys() & ends.keys()
    return TopicListing(
        {name: topic.id for name, topic in there.items()}, lows, {p: ends[p] for p in ends if p in both}
    )


def changed(client: Client, what: Inquiry, bound: Bound, listing: TopicListing) -> Definite | None:
    """Return the error of topics that are not those that are bound, None where all are.

    The end of the committed records can be behind the bound position when a transaction is open and the source read
    uncommitted records before: that is no regression, so the end of all records is asked for then.
    """
    ids = other_ids(bound, listing.ids)
    behind = {p: both for p, both in regressed(bound, listing.ends).items() if cluster.split(p)[0] not in ids}
    if behind and what.committed:
        places = [cluster.split(partition) for partition in behind]
        ends = cluster.offsets(client, places, "latest", servers=what.servers, committed=False)
        behind = {p: (known, ends.get(p, known)) for p, (known, _) in behind.items() if ends.get(p, known) < known}
    if not ids and not behind:
        return None
    known = [f"{topic} with the id {was}" for topic, (was, _) in sorted(ids.items())]
    known += [f"{partition} with records to {was}" for partition, (was, _) in sorted(behind.items())]
    found = [f"{topic} with the id {now}" for topic, (_, now) in sorted(ids.items())]
    found += [f"{partition} with records to {now}" for partition, (_, now) in sorted(behind.items())]
    other = {*ids, *(cluster.split(partition)[0] for partition in behind)}
    meant = {topic for partition in bound.details if what.topics.selects(topic := cluster.split(partition)[0])}
    if others := sorted(meant - other):
        return TopicRecreated(source=what.name, topics=sorted(other), others=others)
    return UpstreamRecreated(source=what.name, known="; ".join(known[:5]), found="; ".join(found[:5]))


def taken_back(client: Client, what: Inquiry, bound: Bound, listing: TopicListing) -> dict[str, tuple[int, int]]:
    """Return what partitions had shown at the last look, and have no longer, although nothing of it is bound.

    Raises `EndTakenBack` where a loss ends the source. The end of the committed records alone may go back while
    another broker takes over: then the end of all records is asked for.
    """
    shown = ORIGIN if bound.last is None else bound.last.end
    back = behind(shown, listing.ends)
    if back and what.committed:
        places = [cluster.split(partition) for partition in back]
        back = behind(shown, cluster.offsets(client, places, "latest", servers=what.servers, committed=False))
    if back and what.stop:
        partition, (end, seen) = min(back.items())
        raise EndTakenBack(place=f"partition {partition} of source {what.name!r}", seen=seen, end=end)
    return back


def _asking(client: Client, what: Inquiry) -> Callable[[Iterable[str], int], Mapping[str, int]]:
    def at(partitions: Iterable[str], moment: int) -> Mapping[str, int]:
        return cluster.offsets(client, map(cluster.split, partitions), moment, servers=what.servers)

    return at
