"""Whether a server's log is still the one that was read: its last transaction, remembered, and looked at again.

A server whose files were put back from a copy without recovery has the identity, the timeline and the slot of before.
It writes other transactions at places of the log that the flow has had, and these would be passed over. But its slot
is the one of the copy, too, and is not further than the copy was. So the log is read from the slot on, and the last
transaction before the place up to which the flow is bound must be the same one.

    slot before that place    its log is read from there and compared, whether outputs lack it or have it all
    slot at that place        it has the log with which it was told

The slot waits for every output, for days where one has failed; bindings do not. So a note is made of each place
before what precedes it is given. Of many places some are forgotten, never the last ones; the log is compared up to
one a little before that of the binding then.

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

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

from tidegauge.errors.postgressource import LogRewritten
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.thinning import thinned

__all__ = ["Comparison", "GivenTransactions", "LastTransaction", "LogWitness", "remembered"]

_FILE: Final = "witness.json"


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
    """The last transactions before the places that were given: one of them is where the flow is bound.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     start = LogWitness("server 1", 0, 16, 16, None, frozenset())
    ...     given = GivenTransactions(SourceFolder(path), start)
    ...     given.add(48, None)
    ...     given.add(80, LastTransaction(lsn=64, at=9, xid=7))
    ...     [remembered(SourceFolder(path), start, bound).before for bound in (47, 48, 79, 80)]
    [16, 48, 48, 80]
    """

    def __init__(self, folder: SourceFolder, witness: LogWitness) -> None:
        self._folder: Final = folder
        self._witness = witness
        self._given: list[tuple[int, LastTransaction | None]] = []

    def add(self, place: int, last: LastTransaction | None) -> None:
        """Note that all before a place is about to be given, and the last transaction of it that was read here.

        Up to the place of the witness nothing is noted: the log may yet turn out to be another one.
        """
        if place > self._witness.before:
            self._given = thinned([*self._given, (place, last or self._witness.last)])
            given = [(place, None if one is None else asdict(one)) for place, one in self._given]
            said = {**asdict(self._witness), "oids": sorted(self._witness.oids), "given": given}
            self._folder.note(_FILE, said, durable=False)

    def join(self, oids: Iterable[int]) -> None:
        """Take in tables whose transactions count from the place reached on."""
        self._witness = replace(self._witness, oids=self._witness.oids | set(oids))

    def told(self, place: int) -> None:
        """Take in that the server is about to be told of a place: nobody asks for less any more."""
        while self._given and self._given[0][0] <= place:
            before, last = self._given.pop(0)
            self._witness = replace(self._witness, before=before, last=last)


def remembered(folder: SourceFolder, known: LogWitness, bound: int) -> LogWitness:
    """Return the witness of a source's folder for the place up to which it is bound, or the last one before that.

    It is the known one, where nothing is bound, or that of the folder is of another log, or not as far.
    """
    if not bound:
        return known
    try:
        said = folder.noted(_FILE)
        given = [(said["before"], said["last"]), *said.pop("given", ())]
        before, last = ([one for one in given if one[0] <= bound] or given[:1])[-1]
        transaction = None if last is None else LastTransaction(**last)
        found = LogWitness(**{**said, "before": before, "last": transaction, "oids": frozenset(said["oids"])})
        further = found.before >= known.before
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # a power cut may have emptied it
        return known
    same = (found.identity, found.incarnation) == (known.identity, known.incarnation) and found.oids <= known.oids
    return replace(found, oids=known.oids) if same and further else known  # others count from later places on


def _shown(transaction: LastTransaction | None) -> str:
    return "none" if transaction is None else f"the transaction {transaction.xid} at {Lsn(transaction.lsn)}"
