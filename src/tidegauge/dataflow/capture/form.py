"""The events of one captured stream, written and read: frames whose bodies are a header and then events.

A header says with which order the stream was captured and how its batches are written. A body of an event begins with
a letter: `P` for progress, a letter of `notation` for a message.

Invariant: reading returns exactly the events that were written, in the same sequence, and legal ones: none that a
capture cannot have recorded, as the `Ledger` knows it.

>>> import io
>>> from tidegauge.dataflow.order import INT
>>> form = Encoder("here", INT)
>>> written = form.start() + form.encode(Messages((0,), ["tea"])) + form.encode(Progress(((0, -1),)))
>>> events = Decoder("there", INT, io.BytesIO(written).read)
>>> events.next(), events.next(), events.next()
(Messages(stamp=(0,), batch=['tea']), Progress(changes=((0, -1),)), None)
>>> print(events.ending())
complete
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.dataflow.capture.frames import Packer, Unpacker
from tidegauge.dataflow.capture.notation import Notation, decode_batch, encode_batch
from tidegauge.dataflow.frontier import ChangeBatch, mutable_antichain
from tidegauge.dataflow.operators.capture import Event, Messages, Progress
from tidegauge.dataflow.order import Order, Time
from tidegauge.errors.base import brief
from tidegauge.errors.events import DamagedEvents, EventsOfAnotherOrder, IllegalEvent, NewerEvents, NotWritable

__all__ = ["Decoder", "Encoder", "Ending", "Ledger"]

_BATCHES: Final = "lettered"
_PROGRESS: Final = b"P"
_SIZE: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a captured stream ended.

    frontier: how far it had come, in sort order; empty when all of it is there. at: the byte after the last whole
    event. torn: how many bytes of another one follow. lost: why the connection ended, or "".
    """

    frontier: tuple[Time, ...]
    at: int
    torn: int
    lost: str = ""

    @property
    def complete(self) -> bool:
        """Whether the stream had come to its end."""
        return not self.frontier

    def __str__(self) -> str:
        if self.complete:
            return "complete"
        cut = f", within an event: {self.torn} bytes of it are left out" if self.torn else ""
        lost = f" ({self.lost})" if self.lost else ""
        return f"it ends at byte {self.at}{cut}{lost}, although its frontier is still {list(self.frontier)!r}"


class Encoder:
    """Writes the events of one stream. `name` is for errors."""

    def __init__(self, name: str, order: Order[Any]) -> None:
        self._name: Final = name
        self._packer: Final = Packer(name)
        self._notation: Final = Notation.of(order)
        self._ledger: Final = Ledger(order)

    def start(self) -> bytes:
        """Return what comes before the events."""
        header = _json({"order": self._notation.name, "batches": _BATCHES})
        return self._packer.start() + self._packer.pack(header)

    def encode(self, event: Event) -> bytes:
        """Return the frame of an event. Raises NotWritable, EventTooLarge, IllegalEvent; nothing has changed then."""
        if isinstance(event, Progress):
            times = [[self._time(time), delta] for time, delta in event.changes]
            pieces: tuple[bytes, ...] = (_PROGRESS, _json(times))
        else:
            stamp = _json([self._time(time) for time in event.stamp])
            try:
                letter, payload = encode_batch(event.batch)
            except (TypeError, ValueError) as error:
                raise NotWritable(name=self._name, kind="batch", problem=str(error)) from error
            pieces = (letter, _SIZE.pack(len(stamp)), stamp, payload)
        if (problem := self._ledger.refusal(event)) is not None:
            raise IllegalEvent(name=self._name, problem=problem)
        frame = self._packer.pack(*pieces)
        self._ledger.note(event)
        return frame

    def _time(self, time: Time) -> Any:
        try:
            written = self._notation.encode(time)
            _json(written)
        except (TypeError, ValueError) as error:
            raise NotWritable(name=self._name, kind="time", problem=str(error)) from error
        return written


class Decoder:
    """Reads the events of one stream. `read(n)` returns at most `n` bytes, none only at the end."""

    def __init__(self, name: str, order: Order[Any], read: Callable[[int], bytes]) -> None:
        self._name: Final = name
        self._unpacker: Final = Unpacker(name, read)
        self._notation: Final = Notation.of(order)
        self._ledger: Final = Ledger(order)
        self._opened = False

    @property
    def at(self) -> int:
        """How many bytes were read as whole events, the beginning included."""
        return self._unpacker.at

    def ending(self, lost: str = "") -> Ending:
        """Return how the stream ended, if it ended here."""
        return Ending(self._ledger.frontier(), self._unpacker.at, self._unpacker.torn, lost)

    def open(self) -> bool:
        """Read the header, if it has not been read; return whether it is there.

        Raises NotEvents, NewerEvents, EventsOfAnotherOrder, EventTooLarge, DamagedEvents.
        """
        if not self._opened:
            header = self._unpacker.next()
            if header is None:
                return False
            order, form = self._parsed(_header, header)
            if form != _BATCHES:
                raise NewerEvents(name=self._name, form=f"batches {form!r}", known=repr(_BATCHES))
            if order != self._notation.name:
                raise EventsOfAnotherOrder(name=self._name, at=order, here=self._notation.name)
            self._opened = True
        return True

    def next(self) -> Event | None:
        """Return the next event, None at the end. Raises what `open` raises, and IllegalEvent."""
        if not self.open():
            return None
        at = self._unpacker.at
        body = self._unpacker.next()
        if body is None:
            return None
        event: Event = self._parsed(self._event, body, at)
        problem = self._parsed(self._ledger.refusal, event, at)
        if problem is not None:
            raise IllegalEvent(name=self._name, problem=f"{problem}, at byte {at}")
        self._ledger.note(event)
        return event

    def _event(self, body: bytes) -> Event:
        letter = body[:1]
        if letter == _PROGRESS:
            return Progress(tuple(self._change(change) for change in json.loads(body[1:])))
        (size,) = _SIZE.unpack_from(body, 1)
        end = 1 + _SIZE.size + size
        if end > len(body):
            raise ValueError("its stamp is longer than itself")
        stamp = tuple(self._notation.decode(time) for time in json.loads(body[1 + _SIZE.size : end]))
        return Messages(stamp, decode_batch(letter, body[end:]))

    def _change(self, change: Any) -> tuple[Time, int]:
        time, delta = change
        if type(delta) is not int or not delta:
            raise ValueError(f"a count changes by {delta!r}")
        return self._notation.decode(time), delta

    def _parsed(self, parse: Callable[[Any], Any], body: Any, at: int = 0) -> Any:
        """Parse what came from outside: whatever is wrong with it, and however it is found, it is damaged."""
        try:
            return parse(body)
        except Exception as error:
            raise DamagedEvents(name=self._name, at=at, problem=brief(error)) from error


def _header(header: bytes) -> tuple[str, str]:
    parsed = json.loads(header)
    return str(parsed["order"]), str(parsed["batches"])


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


class Ledger:
    """The counts of one captured stream after the events so far: which events a capture can have recorded next.

    A capture begins with one count at the minimum. What it records is legal when every message, and every count
    gained, lies at or beyond a time whose count was positive before, and no count is ever negative. A frontier that
    is made of legal events never passes a message that is still to come; of others, nothing can be said.

    >>> from tidegauge.dataflow.order import INT
    >>> ledger = Ledger(INT)
    >>> ledger.note(Progress(((0, -1), (3, 1))))
    >>> ledger.frontier()
    (3,)
    >>> ledger.refusal(Messages((2,), "late"))
    'a batch at 2 when the frontier is [3]'
    """

    __slots__ = ("_counts",)

    def __init__(self, order: Order[Any]) -> None:
        self._counts = mutable_antichain(order)
        self._counts.update([(order.minimum, 1)])

    def frontier(self) -> tuple[Time, ...]:
        """Return the frontier of the stream; nothing more can come when it is empty."""
        return self._counts.elements()

    def refusal(self, event: Event) -> str | None:
        """Return why an event is illegal now, None if it is not."""
        if isinstance(event, Messages):
            for time in event.stamp:
                if not self._counts.less_equal(time):
                    return f"a batch at {time!r} when the frontier is {list(self.frontier())!r}"
            return None
        for time, delta in event.changes:
            if delta > 0 and not self._counts.less_equal(time):
                return f"{delta} more at {time!r} when the frontier is {list(self.frontier())!r}"
        for time, delta in ChangeBatch(event.changes).items():
            if self._counts.count_for(time) + delta < 0:
                return f"{-delta} fewer at {time!r}, where there are {self._counts.count_for(time)}"
        return None

    def note(self, event: Event) -> None:
        """Count a legal event."""
        if isinstance(event, Progress):
            self._counts.update(event.changes)
