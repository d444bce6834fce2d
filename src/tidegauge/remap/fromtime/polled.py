"""Sources that can only be polled: positions count the polls that brought something, and a state says how to go on.

Upstream has no position that sorts: an ETag, a cursor, a page. So each poll that changed anything gets the next
number, and what upstream needs to hear at the next poll is kept beside the binding, as a `SourceState`. A frontier is
written as its number alone: how many polls are in.

The value of a state is opaque: nothing but its source reads it. It is bytes, or plain JSON without floats. A state
holds the canonical text of its value and nothing that could change, so it is frozen all the way down, and two states
are equal iff their texts are, byte for byte. It is kept as this text, never as a pickle. No error and no `repr` shows
its value.

Invariant: `SourceState.decode(state.encode()) == state`.

>>> SEQUENCE.parse("17"), SEQUENCE.render(Frontier())
(Frontier({'polls': 17}), '0')
>>> state = SourceState(kind="http/etag", source_id="https://example.org/rates", value={"etag": "B", "page": 3})
>>> state.encode()
'{"kind":"http/etag","source_id":"https://example.org/rates","value":{"json":{"etag":"B","page":3}},"watermark":null}'
>>> day = datetime(2050, 1, 2, tzinfo=UTC)
>>> SourceState(kind="cursor", source_id="x", value=bytes([0, 255]), watermark=day).encode()
'{"kind":"cursor","source_id":"x","value":{"base64":"AP8="},"watermark":"2050-01-02T00:00:00.000000Z"}'
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tidegauge.errors.fromtime import InvalidNotation, InvalidPlace, InvalidState, NotCanonical, StateTooLarge
from tidegauge.remap.fromtime.encoding import JsonValue, dump, load
from tidegauge.remap.fromtime.protocol import LONGEST_NAME, check_place, checked, excerpt, readable
from tidegauge.remap.frontier import Frontier

__all__ = ["LARGEST_STATE", "POLLS", "SEQUENCE", "Sequence", "SourceState"]

POLLS: Final = "polls"
"""The one partition."""

_KIND: Final = "sequence"
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")

LARGEST_STATE: Final = 2**20
"""Bytes of an encoded state. One is kept with every binding at which it changed."""

_INSTANT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(frozen=True, slots=True)
class Sequence:
    """The clock that is made by counting polls."""

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return _KIND

    def check(self, partition: str, position: int, /) -> None:
        """Raise `InvalidPlace` for another partition than `POLLS`."""
        if partition != POLLS:
            problem = f"its only partition is {POLLS!r}"
            raise InvalidPlace(kind=_KIND, partition=excerpt(partition), position=position, problem=problem)

    def parse(self, text: str, /) -> Frontier:
        """Return the frontier of a number of polls."""
        if not _NUMBER.fullmatch(readable(_KIND, text)):
            raise InvalidNotation(kind=_KIND, text=excerpt(text), problem="a number of polls is expected")
        polls = int(text)
        check_place(_KIND, POLLS, polls)
        return Frontier({POLLS: polls})

    def render(self, frontier: Frontier, /) -> str:
        """Return the number of polls that are in."""
        return str(checked(self, frontier)[POLLS])


SEQUENCE: Final = Sequence()
"""The one instance that is needed."""


@dataclass(frozen=True, slots=True, init=False)
class SourceState:
    """The state of a polled source after a poll.

    kind: who can read the value, such as "http/etag". source_id: what it is the state of, such as the URL. value:
    bytes, or None, booleans, integers of 64 bits, texts, and lists and objects of these. watermark: the event time up
    to which the source takes its data to be complete, with a time zone, or None.
    """

    kind: str
    source_id: str
    watermark: datetime | None
    _value: str = field(repr=False)
    _text: str = field(repr=False, compare=False)

    def __init__(
        self, *, kind: str, source_id: str, value: JsonValue | bytes, watermark: datetime | None = None
    ) -> None:
        """Raises `InvalidState` for what cannot be kept, `StateTooLarge` beyond `LARGEST_STATE`."""
        try:
            moment = None if watermark is None else _utc(watermark)
            _check_name("kind", kind)
            _check_name("source_id", source_id)
            written = dump(_wrapped(value))
        except ValueError as error:
            raise InvalidState(
                kind=excerpt(str(kind)), source_id=excerpt(str(source_id)), problem=str(error)
            ) from error
        said = "null" if moment is None else dump(_instant(moment))
        text = f'{{"kind":{dump(kind)},"source_id":{dump(source_id)},"value":{written},"watermark":{said}}}'
        values = {"kind": kind, "source_id": source_id, "watermark": moment, "_value": written, "_text": text}
        for name, found in values.items():
            object.__setattr__(self, name, found)
        if (size := len(text.encode())) > LARGEST_STATE:
            raise StateTooLarge(kind=excerpt(kind), source_id=excerpt(source_id), size=size, limit=LARGEST_STATE)

    @property
    def value(self) -> JsonValue | bytes:
        """The value, as a copy of the caller's own."""
        return _unwrapped(load(self._value, limit=LARGEST_STATE))

    def encode(self) -> str:
        """Return the canonical text."""
        return self._text

    @staticmethod
    def decode(text: str) -> SourceState:
        """Return the state of a canonical text. Raises `NotCanonical`."""
        try:
            match load(text, limit=LARGEST_STATE):
                case {"kind": str(kind), "source_id": str(source_id), "value": wrapped, "watermark": moment}:
                    watermark = None if moment is None else datetime.strptime(moment, _INSTANT).replace(tzinfo=UTC)
                    state = SourceState(
                        kind=kind, source_id=source_id, value=_unwrapped(wrapped), watermark=watermark
                    )
                case _:
                    raise ValueError('it is no object of "kind", "source_id", "value" and "watermark"')
            if state.encode() != text:
                raise ValueError("it is not in its canonical form")
        except (ValueError, TypeError, InvalidState, StateTooLarge) as error:
            problem = error.summary if isinstance(error, InvalidState | StateTooLarge) else str(error)
            raise NotCanonical(thing="state", problem=problem) from error
        return state


def _wrapped(value: JsonValue | bytes) -> dict[str, Any]:
    """Return JSON that says which of the two a value is, so that bytes and their base64 text stay apart."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    return {"json": value}


def _unwrapped(wrapped: JsonValue) -> JsonValue | bytes:
    match wrapped:
        case {"base64": str(text)} if len(wrapped) == 1:
            return base64.b64decode(text, validate=True)
        case {"json": value} if len(wrapped) == 1:
            return value
    raise ValueError('its value is neither "json" nor "base64"')


def _check_name(name: str, value: object) -> None:
    if type(value) is not str or not value or "\0" in value:
        raise ValueError(f"its {name} is no text, or empty")
    if len(value.encode()) > LONGEST_NAME:
        raise ValueError(f"its {name} takes more than {LONGEST_NAME} bytes")


def _utc(moment: object) -> datetime:
    if type(moment) is not datetime or moment.utcoffset() is None:
        raise ValueError("its watermark is no datetime with a time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("its watermark is out of range") from None


def _instant(moment: datetime) -> str:
    """Return an instant as the store writes it; `strftime` gives years before 1000 fewer than four digits."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
