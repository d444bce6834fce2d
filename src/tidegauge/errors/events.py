"""TG-074x: captured events in files and on sockets.

>>> print(EventsOfAnotherOrder(name="orders.events", at="Product(Integers, Integers)", here="Integers"))
TG-0742: orders.events was captured with the order Product(Integers, Integers), not with Integers
  likely cause: its times mean something else
  what to do:   replay it in a scope of the order that it was captured with
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = [
    "DamagedEvents",
    "EventTooLarge",
    "EventsOfAnotherOrder",
    "IllegalEvent",
    "NewerEvents",
    "NotEvents",
    "NotWritable",
    "WriterBroken",
]


class NotEvents(TidegaugeError):
    """A file or connection that does not hold captured events."""

    code = "TG-0740"
    what = "{name} holds no captured events: it begins with {found}"
    cause = "another file, or one that went through a program that changes line ends"
    remedy = "give the file that an EventWriter wrote, opened in binary mode"


class NewerEvents(TidegaugeError):
    """Captured events in a format that this version does not know."""

    code = "TG-0741"
    what = "{name} is of {form}, and this version reads {known}"
    cause = "it was written by a newer version"
    remedy = "read it with the version that wrote it, or a newer one"


class EventsOfAnotherOrder(TidegaugeError):
    """Events that were captured with an order other than that of the reader."""

    code = "TG-0742"
    what = "{name} was captured with the order {at}, not with {here}"
    cause = "its times mean something else"
    remedy = "replay it in a scope of the order that it was captured with"


class DamagedEvents(TidegaugeError):
    """A frame of captured events that was changed after it was written."""

    code = "TG-0743"
    what = "{name} is damaged at byte {at}: {problem}"
    cause = "the disk, a transfer, or another program that wrote to it"
    remedy = "take a good copy; the events before this byte are whole, and nothing after it was replayed"


class EventTooLarge(TidegaugeError):
    """An event with more bytes than a frame may have."""

    code = "TG-0744"
    what = "{name}: a frame of {size} bytes at byte {at}, of at most {limit}"
    cause = "a batch that is too large, on writing; damage or ill will, on reading"
    remedy = "send smaller batches; do not trust a stream that no EventWriter wrote"


class NotWritable(TidegaugeError):
    """A time or a batch that has no written form."""

    code = "TG-0745"
    what = "{name}: a {kind} cannot be written: {problem}"
    cause = "times are made of int, str, None and tuples; batches are JSON values, bytes, Arrow batches and tables"
    remedy = "map the stream to batches of these before it is captured; give an order of your own encode and decode"


class IllegalEvent(TidegaugeError):
    """An event that no capture can have recorded: nothing entitled to it."""

    code = "TG-0746"
    what = "{name}: {problem}"
    cause = "events that were composed by hand, left out or replayed twice"
    remedy = "capture the stream again; a frontier made from these events could not be trusted"


class WriterBroken(TidegaugeError):
    """Events cannot be written, because writing one of them has failed before."""

    code = "TG-0747"
    what = "{name}: nothing more can be written after {error}"
    cause = "the last frame may be half written, and nothing after it could be read"
    remedy = "see the first error: a full disk, a closed file, a peer that went away; then capture again"
