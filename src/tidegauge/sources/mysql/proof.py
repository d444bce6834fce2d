"""The proof that a log still has what the flow has: the stream begins one transaction earlier, which is compared.

    (the transaction of the mark)  others that the flow has  |  what it lacks
                  compared              passed over                given

Invariant: no transaction that the flow lacks is given before the one of the mark has been found to be the same.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from tidegauge.errors.running import UpstreamRecreated
from tidegauge.sources.mysql.events import GTIDS, HEADER, gtid_of
from tidegauge.sources.mysql.gathering import EventGathering
from tidegauge.sources.mysql.marks import LogMark, ReadTransaction

__all__ = ["LogProof"]


class LogProof:
    """The transactions of a domain before a number, as they come by the stream.

    source: the name in the flow. mark: what the first of them must be, None where that is not known.
    """

    def __init__(self, source: str, domain: str, before: int, mark: LogMark | None) -> None:
        self.found: LogMark | None = None
        """The first of them."""
        self.over = False
        """Whether a transaction has come that is not one of them."""
        self._source: Final = source
        self._domain: Final = domain
        self._before: Final = before
        self._mark: Final = mark
        first = before - 1 if mark is None else mark.sequence
        self._earlier: Final = EventGathering(source, {}, domain, {domain: first}, {}, _nowhere)
        self._within = False

    def takes(self, event: bytes) -> bool:
        """Take in an event of such a transaction, and return True; return False for another one's.

        Raises `UpstreamRecreated` where the first one is not that of the mark, or is not there.
        """
        if event[4] in GTIDS:
            gtid = gtid_of(event)
            ours = gtid.domain == self._domain
            self._within = ours and gtid.sequence < self._before
            if ours and not self._within:
                self.over = True
                if self._mark is not None and self.found is None:
                    raise self._other(f"{gtid} of {_time(event)}, and none before it")
        if not self._within:
            return False
        self._earlier.take(event)
        if self.found is None:
            read = self._earlier.last
            if read is None and self._earlier.open is not None and self._earlier.open.enough:
                read = self._earlier.open
            if read is not None:
                self._compare(read)
        return True

    def _compare(self, read: ReadTransaction) -> None:
        self.found = read.mark
        if self._mark is not None and (self.found.sequence, self.found.digest) != (
            self._mark.sequence,
            self._mark.digest,
        ):
            raise self._other(f"{read.gtid} of {_time(read.events[0])}, with other bytes ({self.found.digest[:8]})")

    def _other(self, found: str) -> UpstreamRecreated:
        known = "" if self._mark is None else f"{self._mark.gtid} ({self._mark.digest[:8]})"
        return UpstreamRecreated(source=self._source, known=f"a log with {known}", found=f"a log with {found}")


def _time(event: bytes) -> str:
    seconds: int = HEADER.unpack_from(event)[0]
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


def _nowhere(_sequence: int, _data: bytes) -> tuple[str, int]:
    raise AssertionError("no table is followed")
