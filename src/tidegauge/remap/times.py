"""When each epoch was minted, and how far one clock may differ from another.

Invariant. Times never go back, although clocks do: an epoch that a clock dates before the one in front of it was
minted at the time of that one, as in the store. So the epochs minted by some time are a prefix of the timeline.

>>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
>>> times = EpochTimes()
>>> times.append(noon); times.append(noon - timedelta(hours=1)); times.append(noon + timedelta(seconds=5))
>>> times.at_time(noon), times.at_time(noon + timedelta(days=1)), times.at_time(noon - timedelta(seconds=1))
(1, 2, None)
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import numpy as np

from tidegauge.errors.flow import InvalidArgument

__all__ = ["EpochTimes", "judge", "shown"]

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)

_OFF: Final = timedelta(minutes=1)
_WRONG: Final = timedelta(hours=1)


class EpochTimes:
    """The time of minting of the epochs `0 .. upper - 1`, in microseconds since 1970 (UTC): 8 bytes an epoch.

    Epochs are dense: epoch `e` is at index `e`, and `at_time` is one binary search. Append-only: an answer about the
    first `upper` epochs stays true.
    """

    __slots__ = ("_ticks",)

    def __init__(self) -> None:
        self._ticks: array[int] = array("q")

    @classmethod
    def load(cls, instants: Iterable[str]) -> EpochTimes:
        """Return the times of the epochs from 0 on, as the store has them, like `2026-11-20T17:00:00.000000Z`.

        Raises `ValueError` for other text.
        """
        times = cls()
        texts = np.array(list(instants), "S26")  # without the Z: numpy's times have no zone
        ticks = np.maximum.accumulate(texts.astype("datetime64[us]").astype(np.int64))
        times._ticks.frombytes(ticks.tobytes())
        return times

    def append(self, at: datetime) -> None:
        """Say when the epoch `upper` was minted."""
        tick = _tick(at)
        self._ticks.append(max(tick, self._ticks[-1]) if self._ticks else tick)

    @property
    def upper(self) -> int:
        """The epoch after the last whose time is known."""
        return len(self._ticks)

    def minted_at(self, epoch: int) -> datetime:
        """Return when an epoch was minted, in UTC."""
        if not 0 <= epoch < self.upper:
            raise InvalidArgument(parameter="epoch", value=epoch, expected=f"an epoch below {self.upper}")
        return _ZERO + self._ticks[epoch] * _TICK

    def at_time(self, when: datetime) -> int | None:
        """Return the greatest epoch minted at or before a time, None when there is none.

        Raises `InvalidArgument` for anything but a time with its zone: only that names an instant.
        """
        found = bisect_right(self._ticks, _tick(when))
        return found - 1 if found else None


def _tick(time: datetime) -> int:
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise InvalidArgument(parameter="time", value=str(time), expected="a datetime with its timezone")
    return (time - _ZERO) // _TICK


def judge(now: datetime, other: datetime) -> Literal["fine", "off", "wrong"]:
    """Say what it means that another clock says `other`: whether, and how much, it is ahead of ours.

    One clock that was a year ahead would hold the times of epochs there for a year. So a small difference is ignored,
    a larger one is logged, and beyond an hour nothing is bound until somebody has said which clock is right: by
    setting one, or with `retime`, which takes what lies in the future back to now.

    >>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    >>> [judge(noon, noon + ahead) for ahead in (-timedelta(9), timedelta(minutes=5), timedelta(1))]
    ['fine', 'off', 'wrong']
    """
    ahead = other - now
    return "wrong" if ahead > _WRONG else "off" if ahead > _OFF else "fine"


def shown(time: datetime) -> str:
    """Return a time for people."""
    return time.astimezone(UTC).isoformat(sep=" ", timespec="seconds")
