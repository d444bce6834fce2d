r"""The fields of many Protobuf messages, on the wire: numbers, and where values with a length begin.

A message is a sequence of fields, each with a number and a way of writing. Step `k` reads the `k`-th field of every
message that has one: a few operations of numpy for each number that is there, whatever the number of messages is.

Invariant: the findings of a message that is not *odd* are all its fields, in their order, each within its end.
Damage, groups, and a known number that is written another way make a message odd.

>>> import pyarrow as pa
>>> from google.protobuf.timestamp_pb2 import Timestamp
>>> from tidegauge.sources.formats.protobuf.columns import shapes_of
>>> shapes = shapes_of(Timestamp.DESCRIPTOR, [pa.int64(), pa.int32()])
>>> wire = Wire(b"\x08\x05" + b"\x08", 2)
>>> found = wire.scan(shapes, np.array([0, 2]), np.array([2, 3]), np.arange(2), alone=False)
>>> [part.tolist() for part in found[0].all()], wire.odd.tolist()
([[0], [5], [0]], [False, True])
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.gather import PADDING
from tidegauge.sources.formats.protobuf.columns import FIXED, LENGTH, VARINT, FieldShape
from tidegauge.sources.formats.records import Mask

__all__ = ["VARINT_BYTES", "Occurrences", "Wire", "Words"]

STEPS: Final = 256
"""A message of more fields is odd: few have as many, and each step costs the same for few as for many."""
VARINT_BYTES: Final = 10
_TAG_BYTES: Final = 5

Words: TypeAlias = npt.NDArray[np.uint64]


@dataclass(slots=True)
class Occurrences:
    """Where values of one field were found, in the order of the steps: their messages, and the numbers on the wire.

    `words` are numbers, or where values with a length begin, with `lengths`.
    """

    owners: list[Ints] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)
    lengths: list[Ints] = field(default_factory=list)

    def add(self, owners: Ints, words: Words, lengths: Ints) -> None:
        """Note what one step found."""
        self.owners.append(owners)
        self.words.append(words)
        self.lengths.append(lengths)

    def all(self) -> tuple[Ints, Words, Ints]:
        """Return what all steps found."""
        none = np.empty(0, np.int64)
        return (
            np.concatenate([none, *self.owners]),
            np.concatenate([none.astype(np.uint64), *self.words]),
            np.concatenate([none, *self.lengths]),
        )


class Wire:
    """Bytes of many messages. `odd` says which of them are; `rows` of spans say which message each is in."""

    def __init__(self, data: bytes, count: int) -> None:
        self.beyond = len(data) + 1
        self.data = data + PADDING
        self.bytes = np.frombuffer(self.data, np.uint8)
        self.odd = np.zeros(count, np.bool_)

    def scan(
        self, shapes: tuple[FieldShape, ...], begins: Ints, ends: Ints, rows: Ints, *, alone: bool
    ) -> dict[int, Occurrences]:
        """Go through the fields of all spans; return the findings of shape `i`, and of its packed values `~i`."""
        found = defaultdict[int, Occurrences](Occurrences)
        tags = {shape.number << 3 | LENGTH: ~i for i, shape in enumerate(shapes) if shape.many and not shape.inner}
        tags |= {shape.number << 3 | shape.wire: i for i, shape in enumerate(shapes)}
        numbers = {shape.number for shape in shapes}
        at = begins.copy()
        active = np.flatnonzero(at < ends)
        for _ in range(STEPS):
            if not len(active):
                return found
            place, until = at[active], ends[active]
            tag, sound = self.varints(place, _TAG_BYTES)
            words, lengths, inside = self.extents(place, tag, until)
            sound &= inside & (place <= until) & (tag > 7) & (tag < 1 << 32)
            alike = bool((tag == tag[0]).all())
            for one in [int(tag[0])] if alike else np.unique(tag).tolist():
                if one in tags and alike and sound.all():
                    found[tags[one]].add(active, words, lengths)
                elif one in tags:
                    which = np.flatnonzero(sound & (tag == one))
                    found[tags[one]].add(active[which], words[which], lengths[which])
                elif alone or one >> 3 in numbers:
                    sound &= tag != one
            self.odd[rows[active[~sound]]] = True
            at[active] = place
            active = active[sound & (place < until)]
        self.odd[rows[active]] = True
        return found

    def extents(self, at: Ints, tag: Words, ends: Ints) -> tuple[Words, Ints, Mask]:
        """Return what follows tags, advance beyond it, and say for which it could be read.

        A number is its word; for a value with a size, the word is where it begins.
        """
        wire = tag & np.uint64(7)
        words, lengths, sound = np.zeros(len(at), np.uint64), np.zeros(len(at), np.int64), np.zeros(len(at), np.bool_)
        alike = bool((wire == wire[0]).all())
        for kind in (VARINT, LENGTH, *FIXED):
            which: Any = np.flatnonzero(wire == kind) if not alike else slice(None) if wire[0] == kind else []
            place = at[which]
            if not len(place):
                continue
            if kind in FIXED:
                words[which], lengths[which], sound[which] = place, FIXED[kind], True
            else:
                number, good = self.varints(place, VARINT_BYTES if kind == VARINT else _TAG_BYTES)
                words[which], sound[which] = number, good
                if kind == LENGTH:
                    fits = good & (number <= (ends[which] - place).clip(0).astype(np.uint64))
                    words[which], lengths[which], sound[which] = place, np.where(fits, number, 0), fits
            at[which] = np.minimum(place + lengths[which], self.beyond)
        return words, lengths, sound

    def varints(self, at: Ints, most: int) -> tuple[Words, Mask]:
        """Read numbers of seven bits a byte, least first, and advance; say which have at most this number of
        bytes."""
        byte = self.bytes[at]
        words = (byte & 0x7F).astype(np.uint64)
        sound = np.ones(len(at), np.bool_)
        at += 1
        more = np.flatnonzero(byte > 0x7F)
        for i in range(1, most):
            if not len(more):
                break
            place = np.minimum(at[more], self.beyond)
            byte = self.bytes[place]
            words[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * i)
            at[more] = place + 1
            if i == VARINT_BYTES - 1:
                sound[more[byte > 1]] = False
            more = more[byte > 0x7F]
        sound[more] = False
        np.minimum(at, self.beyond, out=at)
        return words, sound
