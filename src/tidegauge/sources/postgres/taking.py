"""What a server sends, on its way into `Gathering`: frames are taken in together, as far as more come directly.

A call costs as much for one frame as for a hundred, so frames wait for others that are about to come. Whole
transactions are taken in at once (`many`), and the beginning of another waits for its end, if more is coming. Few
frames are taken in one by one, which is faster then.

Invariant: every frame is taken in once, in its order; and before anybody waits, all that came is taken in.

>>> gathering = Gathering({("public", "orders"): "orders"}, 0, write=lambda lsn, data: ("file", 0))
>>> taken(gathering, [b"k" + (32).to_bytes(8, "big") + bytes(9)], rest=True), gathering.reached
(1, 32)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from tidegauge.sources.database.clock import ServerClock
from tidegauge.sources.postgres.gathering import Gathering
from tidegauge.sources.postgres.many import whole_transactions
from tidegauge.sources.postgres.replication import payload
from tidegauge.sources.postgres.server import SendingLog

__all__ = ["ComingFrames", "taken"]

_FEW: Final = 64
"""Frames that are taken in one by one."""
_MANY: Final = 8_192
"""Frames from which on no more are waited for."""
_FULL: Final = 4 << 20
"""Bytes of these."""
_LONG: Final = 0.01
"""Seconds for which frames wait for others."""


class ComingFrames:
    """The frames of one connection."""

    def __init__(self, sender: SendingLog, clock: ServerClock) -> None:
        self._sender: Final = sender
        self._clock: Final = clock
        self._waiting: Final[list[bytes]] = []

    def take(self, gathering: Gathering, most: int) -> bool:
        """Take in the frames that are here, and those that come directly behind them; `most` at most.

        Return whether more may come directly: it was not waited for once more.

        Raises what `Gathering.take` does, and the sender.
        """
        frames, most, size = self._waiting, max(1, min(most, _MANY)), 0
        until, coming = self._clock.monotonic() + _LONG, True
        try:
            while coming and len(frames) < most and size < _FULL and self._clock.monotonic() < until:
                before, coming = len(frames), False
                frames.extend(islice(self._sender.frames(), most - before))
                size += sum(map(len, frames[before:]))
                coming = len(frames) > before and self._sender.more()
            return coming
        finally:  # what came before an error may tell of a worse one
            del frames[: taken(gathering, frames, rest=not coming)]


def taken(gathering: Gathering, frames: Sequence[bytes], *, rest: bool) -> int:
    """Take frames in; return how many. Raises what `Gathering.take` does.

    rest: also those behind the last whole transaction. Otherwise they are to be given again, before those that come.
    """
    at = 0
    for found in whole_transactions(frames) if len(frames) >= _FEW else ():
        _one_by_one(gathering, frames[at : found.first])
        if not gathering.take_at_once(found):
            _one_by_one(gathering, frames[found.first : found.upto])
        at = found.upto
    if at and not rest:
        return at
    _one_by_one(gathering, frames[at:])
    return len(frames)


def _one_by_one(gathering: Gathering, frames: Sequence[bytes]) -> None:
    for frame in frames:
        lsn, message = payload(frame)
        if message:
            gathering.take(message)
        else:
            gathering.progress(lsn)
