"""Whether a server's log is still the one that was read: its last transaction, remembered, and looked at again.

A server whose files were put back from a copy without recovery has the identity, the timeline and the slot of before.
It writes other transactions at places of the log that the flow has had, and these would be passed over. But its slot
is the one of the copy, too, and has not moved as far as it was told. So a slot that is behind says that the log may
be another one, and can still give everything since: the last transaction before the place must be the same one.

    slot behind what it was told    its log is read from there; what the flow has had is compared, and not given
    slot where it was told          it has the log with which it was told

A server that was killed forgets a little of what it was told. Then the same transactions are read, and all is well.

Invariant: a transaction is known by the place of its commit, its time and its number. A transaction counts if it
changes a table of `oids`, whatever became of the table since.

>>> seen = LastTransaction(lsn=64, at=9, xid=7)
>>> comparing = Comparison(LogWitness("server 1", 0, 80, 16, seen, frozenset({16384})), begins=48)
>>> comparing.committed(seen)
>>> comparing.passed(80)
True
>>> Comparison(comparing.witness, begins=48).passed(80)
Traceback (most recent call last):
tidegauge.errors.postgressource.LogRewritten: TG-0960: the log of server 1 is another one before 0/50: the last ...
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

from tidegauge.errors.postgressource import LogRewritten
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.database.folder import SourceFolder

__all__ = ["Comparison", "GivenTransactions", "LastTransaction", "LogWitness", "remember", "remembered"]

_FILE: Final = "witness.json"
_MOST: Final = 16_384
"""Places that wait for the server to be told of them: it may not be for days, while an output has failed."""


@dataclass(frozen=True, slots=True)
class LastTransaction:
    """A transaction: the place of its commit, when that was in microseconds since 1970, and the server's number."""

    lsn: int
    at: int
    xid: int


@dataclass(frozen=True, slots=True)
class LogWitness:
    """The last transaction before a place of the log, None where there is none from `since` on.

    identity: of the server. incarnation: of the source. oids: the server's numbers of the tables.
    """

    identity: str
    incarnation: int
    before: int
    since: int
    last: LastTransaction | None
    oids: frozenset[int]


class Comparison:
    """A log that is read again before a place, from where it `begins`."""

    def __init__(self, witness: LogWitness, begins: int) -> None:
        self.witness: Final = witness
        last = witness.last
        self._wanted: Final = last if last is not None and last.lsn >= begins else None
        self._unknown: Final = last is None and begins < witness.since
        self._found: LastTransaction | None = None

    def committed(self, transaction: LastTransaction) -> None:
        """Take in a transaction that changes one of the tables."""
        self._found = transaction

    def passed(self, place: int) -> bool:
        """Take in that everything before a place has come; whether that is all. Raises `LogRewritten`."""
        if place < self.witness.before:
            return False
        if self._found != self._wanted and not self._unknown:
            wanted, found = _shown(self._wanted), _shown(self._found)
            raise LogRewritten(
                source=self.witness.identity,
                known=wanted,
                found=found,
                before=str(Lsn(self.witness.before)),
            )
        return True


class GivenTransactions:
    """The last transactions before the places that were given, until the server is told of them.

    >>> given = GivenTransactions(LogWitness("server 1", 0, 16, 16, None, frozenset()))
    >>> given.add(48, None)
    >>> given.add(80, LastTransaction(lsn=64, at=9, xid=7))
    >>> given.before(70), given.before(80).last.lsn
    (None, 64)
    """

    def __init__(self, witness: LogWitness) -> None:
        self._witness = witness
        self._given: Final[deque[tuple[int, LastTransaction | None]]] = deque(maxlen=_MOST)

    def add(self, place: int, last: LastTransaction | None) -> None:
        """Take in that everything before a place was given, and the last transaction of it that was read here."""
        self._given.append((place, last))

    def join(self, oids: Iterable[int]) -> None:
        """Take in tables whose transactions count from the place reached on."""
        self._witness = replace(self._witness, oids=self._witness.oids | set(oids))

    def before(self, place: int) -> LogWitness | None:
        """Return the witness for a place, None where none was given there; nobody asks for less any more.

        An epoch of an earlier connection may end where this one gave nothing, and of many places the oldest are
        forgotten. Then the server is told without a witness, and the last one stays.
        """
        found: LogWitness | None = None
        while self._given and self._given[0][0] <= place:
            given, last = self._given.popleft()
            if given == place:
                found = replace(self._witness, before=place, last=last or self._witness.last)
        return found


def remembered(folder: SourceFolder, known: LogWitness) -> LogWitness:
    """Return the witness of a source's folder; or the known one, where it is of another log, or not as far."""
    try:
        said = folder.noted(_FILE)
        last = None if said["last"] is None else LastTransaction(**said["last"])
        found = LogWitness(**{**said, "last": last, "oids": frozenset(said["oids"])})
        further = found.before >= known.before
    except (OSError, ValueError, KeyError, TypeError):  # a power cut may have emptied it: then nothing is compared
        return known
    same = (found.identity, found.incarnation) == (known.identity, known.incarnation) and found.oids <= known.oids
    return replace(found, oids=known.oids) if same and further else known  # others count from later places on


def remember(folder: SourceFolder, witness: LogWitness) -> None:
    """Keep a witness, before the server is told of its place."""
    folder.note(_FILE, {**asdict(witness), "oids": sorted(witness.oids)}, durable=False)


def _shown(transaction: LastTransaction | None) -> str:
    return "none" if transaction is None else f"the transaction {transaction.xid} at {Lsn(transaction.lsn)}"
