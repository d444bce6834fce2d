"""Which epoch the past of an output is of: what its user said, and the epoch that this comes to.

    "faithful"            each row has the epoch of its record; in a compacted flow none before `since` is left
    "collapse"            all of the past has the epoch up to which it was published when the output was made
    7, or a time          all that came before that epoch has it, too

Definition: with the epoch `c`, a row of a record in the epoch `e` has `_epoch = max(e, c)`.

Invariants. The epoch is published when it is settled, so some table holds all that it stands for. It is settled once,
and kept by the store and by the table's commits, as the start is: two epochs in one table would be two pasts.

>>> NOW = datetime.fromisoformat("2026-11-20T17:00+00:00")
>>> def settled(said, *, published, since=0):
...     stamps = OutputStamps.of(said)
...     return stamps.epoch("late", first=since, since=since, published=published, times=EpochTimes, now=NOW)
>>> settled("faithful", published=9), settled("faithful", published=9, since=4)
(0, 4)
>>> settled("collapse", published=9), settled("collapse", published=0), settled(7, published=9)
(8, 0, 7)
>>> settled(9, published=9)
Traceback (most recent call last):
tidegauge.errors.outputs.TimestampsNotThere: TG-0232: the past of output 'late' cannot have epoch 9: 9 epochs a...
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.outputs import StartNotThere, TimestampsNotThere
from tidegauge.remap.start import OutputStart, StampMode, StampRecord, epoch_at, start_text
from tidegauge.remap.times import EpochTimes

__all__ = ["FAITHFUL", "OutputStamps", "Stamping"]

Stamping: TypeAlias = int | str | datetime
"""What users write: `"faithful"`, `"collapse"`, an epoch or a time."""

_WORDS: Final[tuple[StampMode, ...]] = ("faithful", "collapse")
_EXPECTED: Final = '"faithful", "collapse", an epoch counted from 0, or a time like 2026-11-20 17:00'


@dataclass(frozen=True, slots=True)
class OutputStamps:
    """Which epoch the past of an output is to have, in its user's words: JSON, equal for equal meanings."""

    said: str

    @staticmethod
    def of(value: Any) -> OutputStamps:
        """Return what a user said. Raises `InvalidArgument`."""
        if value in _WORDS:
            return OutputStamps(json.dumps(value))
        refused = InvalidArgument(parameter="timestamps", value=value, expected=_EXPECTED)
        try:
            said = OutputStart.of(value).said
        except InvalidArgument:
            raise refused from None
        if isinstance(json.loads(said), dict) or value == "now":
            raise refused
        return OutputStamps(said)

    @property
    def mode(self) -> StampMode:
        """What they are, in a word."""
        said = json.loads(self.said)
        for word in _WORDS:
            if said == word:
                return word
        return "as_of"

    def epoch(
        self,
        output: str,
        *,
        first: int,
        since: int,
        published: int,
        times: Callable[[], EpochTimes],
        now: datetime,
    ) -> int:
        """Return the epoch that the past of an output has. Raises `TimestampsNotThere`.

        first: the one that the output is given first. published: the epochs before it are, and its source has not
        failed there. times: when every bound epoch was minted, asked for where that matters. now: the present.
        """
        if self.mode == "faithful":
            return since
        if self.mode == "collapse":
            return max(published - 1, since, 0)

        def refused(why: str) -> TimestampsNotThere:
            return TimestampsNotThere(output=output, timestamps=start_text(self.said), why=why)

        value = json.loads(self.said)
        if isinstance(value, int):
            found = value
        else:
            try:
                found = epoch_at(
                    datetime.fromisoformat(value),
                    times,
                    now,
                    lambda why: StartNotThere(output=output, start=start_text(self.said), why=why),
                )
            except StartNotThere as error:
                raise refused(str(error.evidence["why"])) from None
        if found >= max(published, 1):
            raise refused(f"{published} epochs are published, counted from 0")
        if found < since:
            raise refused(f"the epochs up to {since} were compacted, and have that epoch")
        if found < first:
            raise refused(f"the output begins at epoch {first}")
        return found

    def record(self, epoch: int) -> StampRecord | None:
        """Return the record of them with their epoch; None where every row has the epoch of its record."""
        return StampRecord(self.said, epoch) if epoch or self != FAITHFUL else None


FAITHFUL: Final = OutputStamps('"faithful"')
