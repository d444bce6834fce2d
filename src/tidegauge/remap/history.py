"""The history of a flow as a chain of links, one for each epoch: what the epoch bound, and a digest of all up to it.

    digest(e) = H(digest(e - 1), what epoch e bound: source, incarnation, partitions with their new positions, state)

So two sides that agree on the digest of an epoch agree on every epoch up to it, and to add an epoch costs what it
changes. The store keeps the digest with the epoch, a table with its commit: that is how they prove that they belong
together. A table's commit also carries the links since its last one, so that the timeline can be had back from the
tables when the store is lost.

The digest covers everything that decides which rows an epoch holds. The rest of a link (when it was minted, the facts
that a source keeps, that it has ended) is for the run that goes on from it. So are gaps: they are recorded after
their epochs were bound, and carried by the last link of a commit, of that epoch or a later one.

Invariant: digests are equal iff the incarnations of the store and the bindings are, whatever the order of the sources
and partitions; a link says the same wherever it is read.

>>> genesis = origin("0" * 32)
>>> first = follow(genesis, {"orders": Moves(positions={"p0": 5, "p1": 2})})
>>> first == follow(genesis, {"orders": Moves(positions={"p1": 2, "p0": 5})})
True
>>> first == follow(genesis, {"orders": Moves(positions={"p0": 5, "p1": 2}, incarnation=1)})
False

*The first remaining link.* When old epochs were compacted, or were bound by a version that kept no digests, a history
begins with a `whole` link: it has every source's position, not the changes of an epoch, and its digest is taken on
trust.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, Self

from tidegauge.remap.binding import NO_DETAILS, Detail
from tidegauge.remap.start import StampRecord, StartRecord

__all__ = [
    "NO_HISTORY",
    "Beginning",
    "History",
    "Link",
    "Missed",
    "Moves",
    "agree",
    "fold",
    "follow",
    "origin",
    "rest",
]

_SIZE: Final = 16
"""Bytes of a digest. Nobody makes two histories collide on purpose who could not write the tables anyway."""
_LEAST: Final = 15
"""Digits of a digest that tell histories apart: what fits in the 64-bit integer with a sign that Delta has for it."""


def origin(incarnation: str) -> str:
    """Return the digest before the first epoch of a store's incarnation."""
    return _hash("", ["tidegauge", incarnation])


def follow(before: str, sources: Mapping[str, Moves]) -> str:
    """Return the digest after an epoch that brought this of its sources, given the one before it."""
    return _hash(before, _content(sources))


def rest(incarnation: str, upper: int, sources: Mapping[str, Moves]) -> str:
    """Return the digest with which a history begins at `upper`: of where every source stands then."""
    return _hash(origin(incarnation), [upper, _content(sources)])


def _content(sources: Mapping[str, Moves]) -> list[Any]:
    return [[name, *moves.content] for name, moves in sorted(sources.items()) if moves.bind]


def _hash(before: str, content: Any) -> str:
    text = json.dumps(content, separators=(",", ":"))
    return blake2b(f"{before}{text}".encode("ascii"), digest_size=_SIZE).hexdigest()


@dataclass(frozen=True, slots=True)
class Beginning:
    """A new incarnation of a source's upstream that begins with an epoch: see `store.incarnations`."""

    number: int
    identity: str
    at: str
    reason: str


@dataclass(frozen=True, slots=True)
class Missed:
    """Records that are lost, `[lower, upper)` of a partition from `epoch` on: a row of `gaps`, see `store.Gap`."""

    epoch: int
    partition: str
    lower: int
    upper: int
    at: str
    code: str
    reason: str

    @staticmethod
    def decode(data: Any) -> Missed:
        """Return a list that was turned into JSON data. Raises `ValueError` or `TypeError`."""
        epoch, partition, lower, upper, *texts = data
        at, code, reason = map(_text, texts)
        datetime.fromisoformat(at)
        return Missed(_count(epoch), _text(partition), _count(lower), _count(upper), at, code, reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moves:
    """What an epoch brought of one source: the partitions that moved, with their next positions, and its new state.

    incarnation: the number of the one that the positions belong to; begun: those that began with this epoch. sealed:
    whether it has ended by now. identity, schema, details: facts that came with it, in the store's words; "" and none
    if there are none. moved: in a whole link, the last epoch at which any partition moved. gaps: the losses recorded
    when the link was written, of any epoch up to this one.
    """

    positions: Mapping[str, int] = field(default_factory=dict)
    incarnation: int = 0
    state: str | None = None
    sealed: bool = False
    begun: tuple[Beginning, ...] = ()
    identity: str = ""
    schema: str = ""
    details: Mapping[str, Detail] = field(default_factory=lambda: NO_DETAILS)
    moved: int | None = None
    gaps: tuple[Missed, ...] = ()

    @property
    def bind(self) -> bool:
        """Whether they bind anything."""
        return bool(self.positions) or self.state is not None

    @property
    def content(self) -> list[Any]:
        """What of them is in the digest. The end of a source is not: it moves no partition."""
        return [self.incarnation, sorted(self.positions.items()), self.state]

    def encode(self) -> dict[str, Any]:
        """Return the moves as JSON data, without the usual values."""
        data: dict[str, Any] = {"positions": dict(self.positions)} if self.positions else {}
        data |= {name: found for name in _USUAL if (found := getattr(self, name)) != _USUAL[name]}
        if self.begun:
            data["begun"] = [[one.number, one.identity, one.at, one.reason] for one in self.begun]
        if self.details:
            data["details"] = {partition: dict(detail) for partition, detail in self.details.items()}
        if self.gaps:
            data["gaps"] = [list(astuple(gap)) for gap in self.gaps]
        return data

    @classmethod
    def decode(cls, data: Any) -> Self:
        """Return the moves that `encode` described. Raises `ValueError`, `KeyError` or `TypeError`."""
        positions = {_text(key): _count(position) for key, position in data.get("positions", {}).items()}
        begun = [Beginning(_count(n), *map(_text, rest)) for n, *rest in data.get("begun", [])]
        details = {
            _text(partition): {_text(key): _fact(value) for key, value in detail.items()}
            for partition, detail in data.get("details", {}).items()
        }
        state, moved = data.get("state"), data.get("moved")
        return cls(
            positions=positions,
            incarnation=_count(data.get("incarnation", 0)),
            state=None if state is None else _text(state),
            sealed=data.get("sealed", False) is True,
            begun=tuple(begun),
            identity=_text(data.get("identity", "")),
            schema=_text(data.get("schema", "")),
            details=details,
            moved=None if moved is None else _count(moved),
            gaps=tuple(map(Missed.decode, data.get("gaps", []))),
        )


_USUAL: Final[Mapping[str, Any]] = {
    "incarnation": 0,
    "state": None,
    "sealed": False,
    "identity": "",
    "schema": "",
    "moved": None,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """An epoch in the chain: when it was minted, what it brought, and the digest of all up to it.

    whole: it has where every source stands after the epoch, and not what the epoch changed. starts: where the outputs
    begin whose tables tell it here. since: the epochs before it counted as one when the table was begun, which so has
    all of them as this one.
    """

    epoch: int
    digest: str
    minted_at: datetime
    sources: Mapping[str, Moves]
    whole: bool = False
    starts: Mapping[str, StartRecord] = field(default_factory=dict)
    since: int = 0

    def follows(self, before: str) -> bool:
        """Whether the digest is that of this epoch after all that `before` is the digest of."""
        return not self.whole and self.digest == follow(before, self.sources)

    def encode(self) -> dict[str, Any]:
        """Return the link as JSON data."""
        data: dict[str, Any] = {
            "epoch": self.epoch,
            "digest": self.digest,
            "minted_at": self.minted_at.isoformat(),
            "sources": {name: moves.encode() for name, moves in sorted(self.sources.items())},
        }
        if self.starts:
            data["starts"] = {output: [start.said, start.epoch] for output, start in self.starts.items()}
        if stamps := {output: start.stamps for output, start in self.starts.items() if start.stamps is not None}:
            data["stamps"] = {output: [one.said, one.epoch] for output, one in stamps.items()}
        if self.since:
            data["since"] = self.since
        return {**data, "whole": True} if self.whole else data

    @classmethod
    def decode(cls, data: Any) -> Self:
        """Return the link that `encode` described. Raises `ValueError`."""
        try:
            minted_at = datetime.fromisoformat(data["minted_at"])
            if minted_at.tzinfo is None:
                raise ValueError("its time has no zone")
            stamps = {
                _text(output): StampRecord(_text(said), _count(epoch))
                for output, (said, epoch) in data.get("stamps", {}).items()
            }
            return cls(
                epoch=_count(data["epoch"]),
                digest=_digest(data["digest"]),
                minted_at=minted_at,
                sources={_text(name): Moves.decode(moves) for name, moves in data["sources"].items()},
                whole=data.get("whole", False) is True,
                starts={
                    _text(output): StartRecord(_text(said), _count(epoch), stamps.get(output))
                    for output, (said, epoch) in data.get("starts", {}).items()
                },
                since=_count(data.get("since", 0)),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class History:
    """The links of a stretch of epochs, each the next one's predecessor. Without links nothing is known of it.

    before: the digest at its beginning, "" where none was kept. It is written out once, however many outputs have it.
    """

    links: tuple[Link, ...] = ()
    before: str = ""

    @property
    def digest(self) -> str:
        """The digest at its end, "" where nothing is known."""
        return self.links[-1].digest if self.links else ""

    def telling(self, gaps: Mapping[str, tuple[Missed, ...]]) -> History:
        """Return it with gaps, by source, in its last link. Without links there is no place for them."""
        if not gaps or not self.links:
            return self
        last = self.links[-1]
        told = {name: replace(last.sources.get(name, Moves()), gaps=found) for name, found in gaps.items()}
        return replace(self, links=(*self.links[:-1], replace(last, sources={**last.sources, **told})))

    def beginning(self, output: str, start: StartRecord | None) -> History:
        """Return it with where an output begins, in its last link, for those that do not begin with their source."""
        if start is None or not self.links:
            return self
        return replace(self, links=(*self.links[:-1], replace(self.links[-1], starts={output: start})))

    def followed(self, link: Link, before: str, *, kept: int) -> History:
        """Return the history with one link more, at most the last `kept` in all; of the link alone, where that comes
        after another digest than this one's. before: the digest before the link.

        >>> at = datetime(2026, 11, 22)
        >>> steps = [Link(epoch=n, digest=digest, minted_at=at, sources={}) for n, digest in enumerate("abc")]
        >>> two = NO_HISTORY.followed(steps[0], "", kept=2).followed(steps[1], "a", kept=2)
        >>> three, other = two.followed(steps[2], "b", kept=2), two.followed(steps[2], "x", kept=2)
        >>> [(found.before, found.digest, len(found.links)) for found in (two, three, other)]
        [('', 'b', 2), ('a', 'c', 2), ('x', 'c', 1)]
        """
        if before != self.digest:
            return History((link,), before)
        surplus = len(self.links) + 1 - kept
        links = (*self.links, link)[max(0, surplus) :]
        return History(links, self.links[surplus - 1].digest if surplus > 0 else self.before)

    def between(self, lower: int, upper: int) -> History | None:
        """Return the history of the epochs `[lower, upper)`, None where not all of them are in this one."""
        if not self.links or not self.links[0].epoch <= lower < upper <= self.links[-1].epoch + 1:
            return None
        start = lower - self.links[0].epoch
        before = self.links[start - 1].digest if start else self.before
        return History(self.links[start : upper - self.links[0].epoch], before)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The links as JSON, each on a line without its end."""
        return tuple(json.dumps(link.encode(), separators=(",", ":")) for link in self.links)

    def encode(self) -> str:
        """Return the links as text, a line of JSON each."""
        return "".join(f"{line}\n" for line in self.lines)

    @staticmethod
    def decode(text: str) -> tuple[Link, ...]:
        """Return the links of a text. Raises `ValueError`."""
        try:
            return tuple(Link.decode(json.loads(line)) for line in text.split("\n") if line)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


NO_HISTORY: Final = History()


def agree(kept: str, digest: str) -> bool:
    """Whether a table has kept this digest as far as it could: the first 15 digits, or more."""
    return len(kept) >= _LEAST and digest.startswith(kept)


def fold(links: Iterable[Link]) -> Link | None:
    """Return the links as one, whole, which says where every source stands after the last of them.

    None where that cannot be known: one is missing, or the first is neither whole nor that of epoch 0.
    """
    folded: Link | None = None
    for link in links:
        if not link.whole and link.epoch != (0 if folded is None else folded.epoch + 1):
            return None
        before = {} if folded is None or link.whole else folded.sources
        brought = link.sources if link.whole else {n: _at(link.epoch, moves) for n, moves in link.sources.items()}
        sources = {**before, **{name: _after(before.get(name), moves) for name, moves in brought.items()}}
        starts = link.starts if folded is None else {**folded.starts, **link.starts}
        since = link.since if folded is None else max(folded.since, link.since)
        folded = replace(link, sources=sources, whole=True, starts=starts, since=since)
    return folded


def _at(epoch: int, moves: Moves) -> Moves:
    return replace(moves, moved=epoch) if moves.positions else moves


def _after(before: Moves | None, moves: Moves) -> Moves:
    """Return where a source stands after it stood at `before` and made these moves."""
    if before is None:
        return moves
    anew = bool(moves.begun)
    return replace(
        moves,
        positions=moves.positions if anew else {**before.positions, **moves.positions},
        state=moves.state if anew or moves.state is not None else before.state,
        sealed=moves.sealed or (before.sealed and not anew),
        begun=(*before.begun, *moves.begun),
        identity=moves.identity or ("" if anew else before.identity),
        schema=moves.schema or before.schema,
        details=moves.details if anew else {**before.details, **moves.details},
        moved=before.moved if moves.moved is None else moves.moved,
        gaps=tuple(dict.fromkeys((*before.gaps, *moves.gaps))),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _fact(value: Any) -> str | int:
    if not isinstance(value, str) and type(value) is not int:
        raise TypeError(f"{value!r} is neither a text nor an integer")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no number from 0")
    return value


def _digest(value: Any) -> str:
    if len(bytes.fromhex(_text(value))) != _SIZE:
        raise ValueError(f"{value!r} is no digest")
    return str(value)
