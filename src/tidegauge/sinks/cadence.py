"""When the staged rows of an output are committed: at once, or when enough of them wait.

A commit of a table has a fixed cost, for its writer and for each reader of the table's log. With a cadence many
epochs share one commit. They stay epochs: each row has its own in `_epoch`, and the commit says which it holds.

Invariants. Whatever waits is committed after `seconds`, and not before unless there is enough of it; a cadence
without seconds has `SECONDS`. So a table is never older than its cadence for want of rows.

>>> Cadence.of("10s")
Cadence(seconds=10.0, bytes=None, epochs=None)
>>> cadence = Cadence.of(["64MB", "5min"])
>>> cadence.rest(bytes=0, epochs=1, age=100.0), cadence.rest(bytes=64 << 20, epochs=1, age=100.0)
(200.0, 0.0)
>>> twenty = Cadence.of(20)
>>> twenty.rest(bytes=0, epochs=19, age=1.0) == SECONDS - 1.0, twenty.rest(bytes=0, epochs=20, age=1.0)
(True, 0.0)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidegauge.errors.flow import InvalidArgument
from tidegauge.sizes import bytes_of

__all__ = ["Cadence", "CommitEvery"]

CommitEvery: TypeAlias = str | int | Sequence[str | int]

SECONDS: Final = 60.0
INSTANT: Final = 0.001
"""Seconds that nobody waits for: a clock that is asked when they are over may fall short of it by a rounding."""

LONGEST: Final = 3600.0
LARGEST: Final = 1 << 28
MOST: Final = 1_000
"""A commit takes no more than this of what waits: `backlog.merged`."""

_SAID: Final = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_EXPECTED: Final = (
    f"a time such as '10s' or '5min' (at most an hour), a size such as '64MB' (at most 256MB), "
    f"a number of epochs (at most {MOST:,}), or several of these, one of a kind"
)


@dataclass(frozen=True, slots=True)
class Cadence:
    """Commit once rows have waited for `seconds`, or these bytes or epochs are staged, if that comes sooner."""

    seconds: float = SECONDS
    bytes: int | None = None
    epochs: int | None = None

    @staticmethod
    def of(given: Any) -> Cadence:
        """Return what `commit_every` says. Raises `InvalidArgument`."""
        several = given if isinstance(given, list | tuple) and given else [given]
        found = dict(_read(one, given) for one in several)
        if len(found) < len(several):
            raise _invalid(given)
        return Cadence(**found)

    def rest(self, *, bytes: int, epochs: int, age: float) -> float:
        """Return in how many seconds what waits is to be committed: 0.0 for now.

        bytes, epochs: how much waits. age: for how many seconds the first of it has.
        """
        if bytes >= (self.bytes or LARGEST) or epochs >= (self.epochs or MOST):
            return 0.0
        left = self.seconds - age
        return left if left > INSTANT else 0.0


def _read(one: Any, given: Any) -> tuple[str, Any]:
    """Return which bound this is, and its value. Raises `InvalidArgument` about all that was given."""
    if isinstance(one, int) and not isinstance(one, bool) and 1 <= one <= MOST:
        return "epochs", one
    if isinstance(one, str) and (said := _SAID.fullmatch(one)) is not None:
        number, unit = float(said[1]), said[2]
        if unit in _UNITS and 0 < (seconds := number * _UNITS[unit]) <= LONGEST:
            return "seconds", seconds
        # "5m" would be five minutes to some, and five megabytes to others
        if unit[-1] in "bB" and (size := bytes_of(one)) is not None and 1 <= size <= LARGEST:
            return "bytes", size
    raise _invalid(given)


def _invalid(given: Any) -> InvalidArgument:
    return InvalidArgument(parameter="commit_every", value=given, expected=_EXPECTED)
