"""What a progress record says, and what follows from those of a topic: pure decisions.

    key      flow:output:topic
    value    {"version": 1, "flow": ..., "output": ..., "incarnation": ..., "topic_id": ..., "upper": 42, ...}

A commit writes its messages and one such record in one transaction, so the last record that is committed *is* the
output's upper: the topic holds the epochs before `upper`, and nothing of later ones.

The record also has the digest of the flow's history up to there. As the topic keeps the last record alone, that one
says where every source stands (`remap.history.fold`), as long as this takes no more than `LONGEST` characters;
otherwise it has the links of its own commit.

Invariant: of one life of an output (an incarnation of its store, an incarnation of its topic) the uppers in the topic
never decrease. Lives do not mix: a recreated topic holds nothing, and records of another store are refused.

>>> first = ProgressRecord("shop", "orders", "a" * 32, "T1", upper=3, write="1" * 32, messages=10, size=500)
>>> state = step(None, Record(7, first.encode()), topic="progress")
>>> state == first
True
>>> resumed(state, OutputId("shop", "orders", "a" * 32), topic="orders", topic_id="T1") == first
True
>>> resumed(state, OutputId("shop", "orders", "a" * 32), topic="orders", topic_id="T2").upper
0
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegauge.errors.kafkasink import DamagedProgress, ProgressRegressed
from tidegauge.errors.sinks import TableOfAnotherIncarnation
from tidegauge.remap.history import History, Link, fold
from tidegauge.sinks.commits import in_line
from tidegauge.sinks.protocol import OutputId

__all__ = ["LEAST", "LONGEST", "ProgressRecord", "Record", "key_of", "resumed", "starts", "step"]

LEAST: Final = 20_000
"""The shortest end of a progress topic that is worth a look of its own, in offsets."""

LONGEST: Final = 16 * 1024
"""Characters of links in a record. A search for the last record of an output may have to read over many."""

_VERSION: Final = 1
_PLAIN: Final = ("flow", "output", "incarnation", "topic_id", "upper", "write", "messages", "size")


def key_of(output: OutputId, topic: str) -> str:
    """Return the key of the records of an output in a topic: unique, as topics have no ':' in their names."""
    return f"{output}:{topic}"


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """What a topic holds of an output: the epochs before `upper`, by the attempt `write`.

    messages, size: how many there are in all, and their bytes before compression. digest, links: of the flow's
    history; "" and none in a record of a version without it. Links are JSON data; only those of the last record are
    looked at.
    """

    flow: str
    output: str
    incarnation: str
    topic_id: str
    upper: int = 0
    write: str = ""
    messages: int = 0
    size: int = 0
    digest: str = ""
    links: tuple[Any, ...] = ()

    def encode(self) -> bytes:
        """Return the record's value."""
        data: dict[str, Any] = {"version": _VERSION, **{name: getattr(self, name) for name in _PLAIN}}
        if self.digest:
            data |= {"digest": self.digest, "links": list(self.links)}
        return json.dumps(data).encode()

    def after(self, upper: int, history: History, *, write: str, messages: int, size: int) -> ProgressRecord:
        """Return the topic's progress after a commit up to `upper`, of this number of messages, with this history."""
        try:
            whole = fold((*map(Link.decode, self.links), *history.links))
        except ValueError:  # changed by hand: it is needed only to recover a lost store
            whole = None
        known = History(() if whole is None else (whole,))
        links = next((found.links for found in (known, history) if in_line(found, limit=LONGEST) and found.links), ())
        return replace(
            self,
            upper=upper,
            write=write,
            messages=self.messages + messages,
            size=self.size + size,
            digest=history.digest,
            links=tuple(link.encode() for link in links),
        )

    @staticmethod
    def decode(value: bytes, *, topic: str, offset: int) -> ProgressRecord:
        """Return what a record says. Raises `DamagedProgress`."""
        try:
            data: Any = json.loads(value)
            if data["version"] != _VERSION:
                detail = f"it is of version {data['version']}, and this is version {_VERSION}"
                raise DamagedProgress(topic=topic, offset=offset, detail=detail)
            texts = [data[name] for name in ("flow", "output", "incarnation", "topic_id", "write")]
            numbers = [data[name] for name in ("upper", "messages", "size")]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("a name in it is no text")
            if not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError("a count in it is no number from 0")
            digest, links = str(data.get("digest", "")), tuple(data.get("links", []))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            detail = f"{type(error).__name__}: {error}"
            raise DamagedProgress(topic=topic, offset=offset, detail=detail) from error
        flow, output, incarnation, topic_id, write = texts
        upper, messages, size = numbers
        return ProgressRecord(flow, output, incarnation, topic_id, upper, write, messages, size, digest, links)


@dataclass(frozen=True, slots=True)
class Record:
    """A committed record of an output's key, at an offset. None for a tombstone, which forgets those before it."""

    offset: int
    value: bytes | None


def step(known: ProgressRecord | None, record: Record, *, topic: str) -> ProgressRecord | None:
    """Return the progress after one more record. Raises `ProgressRegressed`, `DamagedProgress`."""
    if record.value is None:
        return None
    found = ProgressRecord.decode(record.value, topic=topic, offset=record.offset)
    if known is not None and _life(known) == _life(found) and found.upper < known.upper:
        output = f"{found.flow}:{found.output}"
        raise ProgressRegressed(topic=topic, output=output, upper=found.upper, known=known.upper)
    return found


def resumed(last: ProgressRecord | None, output: OutputId, *, topic: str, topic_id: str) -> ProgressRecord:
    """Return what a topic holds of an output, given its last record. Raises `TableOfAnotherIncarnation`."""
    if last is None or last.topic_id != topic_id:
        return ProgressRecord(output.flow, output.output, output.incarnation, topic_id)
    if last.incarnation != output.incarnation:
        raise TableOfAnotherIncarnation(table=topic, output=str(output), incarnation=output.incarnation)
    return last


def starts(low: int, high: int) -> list[int]:
    """Return where to begin to look for the last record of a key: ever earlier, the last time at the beginning.

    Most records are near the end. The last record found in a look is the last one there is, so the first look that
    finds something is the last; and all looks together read at most a ninth more than the one at the whole.

    >>> starts(0, 2_500_000), starts(7, 12), starts(7, 7)
    ([2475000, 2250000, 0], [7], [])
    """
    sizes = [high - low] if high > low else []
    while sizes and sizes[-1] // 10 >= LEAST:
        sizes.append(sizes[-1] // 10)
    return [high - size for size in reversed(sizes)]


def _life(progress: ProgressRecord) -> tuple[str, str]:
    return progress.incarnation, progress.topic_id
