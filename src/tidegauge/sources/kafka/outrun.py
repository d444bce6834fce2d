"""Why a broker does not have a range of offsets that was bound: a pure decision, one for all who meet it.

A range `[lower, upper)` was bound, so there were records up to `upper` once. Now the partition has `[low, end)`:

    end < upper                    the end of what was bound is gone: it is another partition (of a new topic),
                                   or the cluster lost records. Whose records `[low, end)` are is not known
    upper <= end and lower < low   it is the partition that was bound, and the beginning is gone: a loss
    otherwise                      the broker has all of it

The end is asked for first: it tells whose records these are, and the beginning only how many of them are left. So a
partition that both begins later and ends earlier is not the one that was bound. If that were called a loss, a source
that goes on without lost records would take `[low, end)` for records that were bound. The probe asks in this order,
too.

>>> from tidegauge.sources.kafka.start import Start
>>> from tidegauge.sources.kafka.topics import Topics
>>> what = Inquiry(name="orders", servers="here:9092", topics=Topics(names=("t",)), start=Start(word="earliest"),
...               limit=1, committed=True, stop=True)
>>> [getattr(outrun(what, "t-0", 5, 9, low=low, end=end), "code", None) for low, end in ((5, 9), (6, 9), (6, 8))]
[None, 'TG-0812', 'TG-0554']
"""

from __future__ import annotations

from tidegauge.errors.kafka import RangeOvertaken, RecordsLost, TopicRecreated
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.kafka.cluster import split
from tidegauge.sources.kafka.probing import Inquiry

__all__ = ["Outrun", "outrun"]

Outrun = RecordsLost | RangeOvertaken | UpstreamRecreated | TopicRecreated


def outrun(what: Inquiry, partition: str, lower: int, upper: int, *, low: int, end: int) -> Outrun | None:
    """Return why `[lower, upper)` of a partition that has `[low, end)` cannot be read, or None: it can.

    A loss is definite if it stops the source; otherwise the range is planned again, without the lost records.
    """
    if end < upper:
        return _another(what, partition, upper, end)
    if low <= lower:
        return None
    if what.stop:
        return RecordsLost(source=what.name, partition=partition, asked=lower, there=low, end=end)
    return RangeOvertaken(partition=partition, asked=lower, there=low)


def _another(what: Inquiry, partition: str, upper: int, end: int) -> UpstreamRecreated | TopicRecreated:
    """Return the error of a partition that is not the one that was bound.

    A new incarnation is of the whole source: it is offered only where there is no other topic that it would repeat.
    """
    topic, topics = split(partition)[0], what.topics
    if topics.names == (topic,):
        known, found = (f"{partition} with records to {position}" for position in (upper, end))
        return UpstreamRecreated(source=what.name, known=known, found=found)
    others = [name for name in topics.names if name != topic] or [f"the others of {topics}"]
    return TopicRecreated(source=what.name, topics=[topic], others=others)
