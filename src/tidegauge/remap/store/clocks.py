"""Clocks that are wrong: how far two of them may be apart before epochs are given times that mislead.

The times of epochs never go back, so that a time stands for one epoch. One clock that was a year ahead would hold
them there for a year. So a small difference is ignored, a larger one is logged, and beyond an hour nothing is
bound until somebody has said which clock is right: by setting one, or with `retime`, which takes what lies in the
future back to now.

>>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
>>> judge(noon, noon - timedelta(days=9)), judge(noon, noon + timedelta(minutes=5)), judge(noon, noon + timedelta(1))
('fine', 'off', 'wrong')
>>> shown(noon)
'2026-11-20 12:00:00+00:00'
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal

__all__ = ["judge", "shown"]

_OFF: Final = timedelta(minutes=1)
_WRONG: Final = timedelta(hours=1)


def judge(now: datetime, other: datetime) -> Literal["fine", "off", "wrong"]:
    """Say what it means that another clock says `other`: whether, and how much, it is ahead of ours."""
    ahead = other - now
    return "wrong" if ahead > _WRONG else "off" if ahead > _OFF else "fine"


def shown(time: datetime) -> str:
    """Return a time for people."""
    return time.astimezone(UTC).isoformat(sep=" ", timespec="seconds")
