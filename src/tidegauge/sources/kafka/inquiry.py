"""What a source reads of a cluster: which topics, and where it begins in them.

Topics are named, or are all whose names match a pattern. Where a source begins (`"earliest"`, `"latest"`, a point in
time, so long ago, or offsets) is resolved to offsets once, ever, and recorded with the first binding. It speaks of
the partitions that are there when the source is bound for the first time, in its first incarnation. Partitions that
come later begin at their beginning: records were produced into them while the source was running.

>>> Topics(pattern=r"orders\\..*").among(["orders.eu", "orders.us", "orders", "my-orders.eu"])
['orders.eu', 'orders.us']
>>> named("orders").among(["clicks", "orders"]), named("orders").names
(['orders'], ('orders',))
>>> Start.of("latest").describe(), Start.of(timedelta(hours=2)).describe(), Start.of({0: 5}).describe()
('latest', {'ago': 7200.0}, {'offsets': {'0': 5}})
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors.flow import InvalidArgument
from tidegauge.kafka.cluster import split

__all__ = ["Given", "Inquiry", "Start", "Topics", "named"]

Given: TypeAlias = Literal["earliest", "latest"] | Mapping[str | int, int] | datetime | timedelta

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LONGEST: Final = 1000
_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)
_LARGEST: Final = 2**63 - 1
_EXPECTED: Final = (
    "'earliest', 'latest', a datetime with its zone, a timedelta back from now, or offsets like {'orders-0': 5}"
)


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics whose whole names match a regular expression, those that are created later too.

    names: made by `named` instead. Kafka's own topics (`__...`) match no pattern. Raises `InvalidArgument`.
    """

    pattern: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.pattern) == bool(self.names):
            raise InvalidArgument(parameter="pattern", value=self.pattern, expected="a pattern that is not empty")
        if self.pattern:
            try:
                valid = isinstance(self.pattern, str) and len(self.pattern) <= _LONGEST
                re.compile(self.pattern if valid else "(")
            except (re.error, RecursionError, OverflowError):
                raise InvalidArgument(
                    parameter="pattern", value=str(self.pattern)[:80], expected="a regular expression"
                ) from None

    def selects(self, topic: str) -> bool:
        """Whether a topic is one of them."""
        return topic in self.names if self.names else re.fullmatch(self.pattern, topic) is not None

    def among(self, topics: Iterable[str]) -> list[str]:
        """Return those of the topics that are meant, sorted."""
        return sorted(topic for topic in topics if self.selects(topic))

    def __str__(self) -> str:
        return ", ".join(self.names) or f"pattern {self.pattern}"


def named(topic: object) -> Topics:
    """Return what a user gave: a name, a list of names, or `Topics`. Raises `InvalidArgument`."""
    if isinstance(topic, Topics):
        return topic
    listed = [topic] if isinstance(topic, str) else list(topic) if isinstance(topic, list | tuple) else []
    if not listed or not all(_legal(name) for name in listed) or len({*listed}) < len(listed):
        raise InvalidArgument(
            parameter="topic", value=topic, expected="a topic's name, a list of them, or tg.Topics(pattern=...)"
        )
    return Topics(names=tuple(listed))


def _legal(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name not in (".", "..")


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


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What to ask, and what of: `name` is the source's, for people; `stop`: whether a loss ends it."""

    name: str
    servers: str
    topics: Topics
    start: Start
    limit: int
    committed: bool
    stop: bool
