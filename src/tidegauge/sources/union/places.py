"""The names that partitions of inputs have in a union, and what it keeps of each: pure functions.

A partition of the union is one of a *life* of an input: `web/orders-0`, and `web~1/orders-0` once `web` was begun
anew as incarnation 1, for positions are those of other records then. The facts of a partition are those that the
input keeps, and the identity of its upstream, where it has one.

Invariant: the input's facts come back as they were, and no two partitions of lives of inputs have one name in the
union: a source's name has neither a slash nor a tilde.

>>> web = InputLife("web", 1)
>>> web.partition("orders-0"), split_of("web~1/a/b"), split_of("web/a")[0]
('web~1/orders-0', (InputLife(name='web', incarnation=1), 'a/b'), InputLife(name='web', incarnation=0))
>>> kept = kept_of({"path": "a.jsonl"}, identity="x")
>>> facts_of(kept), identity_of(kept)
({'path': 'a.jsonl'}, 'x')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from tidegauge.remap.binding import Detail

__all__ = ["UNION", "InputLife", "facts_of", "identity_of", "kept_of", "newest", "split_of"]

UNION: Final = "union"
"""What the configuration of a union says of its kind."""

_IDENTITY: Final = "union.identity"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class InputLife:
    """An incarnation of an input."""

    name: str
    incarnation: int = 0

    def __str__(self) -> str:
        return f"{self.name}~{self.incarnation}" if self.incarnation else self.name

    def partition(self, partition: str) -> str:
        """Return the name that a partition of it has in the union."""
        return f"{self}/{partition}"

    def mine(self, found: Mapping[str, T]) -> Iterator[tuple[str, T]]:
        """Return the entries of its partitions, by their own names."""
        begin = f"{self}/"
        return ((key[len(begin) :], value) for key, value in found.items() if key.startswith(begin))


def split_of(partition: str) -> tuple[InputLife, str]:
    """Return the life that a partition of the union is of, and its own name."""
    life, _, there = partition.partition("/")
    name, _, number = life.partition("~")
    return InputLife(name, int(number or 0)), there


def newest(name: str, found: Mapping[str, object]) -> InputLife:
    """Return the newest life of an input that the union has partitions of, the first one where it has none.

    >>> newest("web", {"web/p0": 1, "web~2/p0": 1, "shop~3/p0": 1})
    InputLife(name='web', incarnation=2)
    """
    return max((life for life, _ in map(split_of, found) if life.name == name), default=InputLife(name))


def kept_of(facts: Detail, *, identity: str) -> Detail:
    """Return what the union keeps of a partition with these facts, of an input whose upstream is this one."""
    return {**facts, _IDENTITY: identity} if identity else facts


def facts_of(kept: Detail) -> Detail:
    """Return the facts that the input keeps of a partition."""
    return {name: value for name, value in kept.items() if name != _IDENTITY}


def identity_of(kept: Detail) -> str:
    """Return the identity of the upstream that a partition is of."""
    return str(kept.get(_IDENTITY, ""))
