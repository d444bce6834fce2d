"""Which topics a source reads: by their names, or all whose names match a pattern.

>>> Topics(pattern=r"orders\\..*").among(["orders.eu", "orders.us", "orders", "my-orders.eu"])
['orders.eu', 'orders.us']
>>> named("orders").among(["clicks", "orders"]), named("orders").names
(['orders'], ('orders',))
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidegauge.errors.flow import InvalidArgument

__all__ = ["Topics", "named"]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LONGEST: Final = 1000


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
