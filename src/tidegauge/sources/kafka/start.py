"""Where a source begins: resolved to offsets once, ever, and recorded with the first binding.

`"earliest"`, `"latest"`, a point in time, so long ago, or offsets. It speaks of the partitions that are there when
the source is bound for the first time, in its first incarnation. What comes later begins at its beginning: records
were produced into it while the source was running.

>>> Start.of("latest").describe(), Start.of(timedelta(hours=2)).describe(), Start.of({0: 5}).describe()
('latest', {'ago': 7200.0}, {'offsets': {'0': 5}})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors.flow import InvalidArgument
from tidegauge.kafka.cluster import split

__all__ = ["Given", "Start"]

Given: TypeAlias = Literal["earliest", "latest"] | Mapping[str | int, int] | datetime | timedelta

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)
_LARGEST: Final = 2**63 - 1
_EXPECTED: Final = (
    "'earliest', 'latest', a datetime with its zone, a timedelta back from now, or offsets like {'orders-0': 5}"
)


@dataclass(frozen=True, slots=True)
class Start:
    """One of `word`, `moment`, `ago` and `offsets` (by partition, or by the number of the only topic's)."""

    word: str = ""
    moment: datetime | None = None
    ago: timedelta | None = None
    offsets: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(given: object) -> Start:
        """Return what a user gave. Raises `InvalidArgument`."""
        if given in ("earliest", "latest"):
            return Start(word=str(given))
        if isinstance(given, datetime) and given.tzinfo is not None:
            return Start(moment=given)
        if isinstance(given, timedelta) and given >= timedelta(0):
            return Start(ago=given)
        if isinstance(given, Mapping) and given and all(_place(k) and _offset(v) for k, v in given.items()):
            return Start(offsets=tuple(sorted((str(key), offset) for key, offset in given.items())))
        raise InvalidArgument(parameter="start", value=given, expected=_EXPECTED)

    def describe(self) -> Any:
        """Return it as JSON."""
        if self.word:
            return self.word
        if self.moment is not None:
            return {"at": self.moment.isoformat()}
        if self.ago is not None:
            return {"ago": self.ago.total_seconds()}
        return {"offsets": dict(self.offsets)}

    def resolve(
        self,
        lows: Mapping[str, int],
        ends: Mapping[str, int],
        *,
        now: datetime,
        at: Callable[[Iterable[str], int], Mapping[str, int]],
    ) -> dict[str, int]:
        """Return the offset at which each partition of `ends` begins.

        at: asks for the first offset of partitions at or after a time in milliseconds since 1970; a partition that
        has none begins at its end. Partitions that offsets leave out begin at their beginning. Raises
        `InvalidArgument` for offsets of partitions that are not there.
        """
        if self.offsets:
            return self._pinned(lows, ends)
        if self.word:
            return dict(lows if self.word == "earliest" else ends)
        moment = self.moment if self.moment is not None else now - (self.ago or timedelta(0))
        found = at(ends, max(0, (moment - _ZERO) // _MILLI))
        return {partition: found.get(partition, end) for partition, end in ends.items()}

    def _pinned(self, lows: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        topics = {split(partition)[0] for partition in ends}
        only = f"{next(iter(topics))}-" if len(topics) == 1 else ""
        offsets = {(f"{only}{key}" if key.isdecimal() and only else key): offset for key, offset in self.offsets}
        if unknown := sorted(offsets.keys() - ends.keys()):
            raise InvalidArgument(parameter="start", value=unknown, expected=f"partitions of {sorted(topics)}")
        return {partition: offsets.get(partition, lows[partition]) for partition in ends}


def _place(key: object) -> bool:
    if isinstance(key, int):
        return not isinstance(key, bool) and key >= 0
    return isinstance(key, str) and bool(key)


def _offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
