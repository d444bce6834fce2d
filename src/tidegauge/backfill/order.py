"""Which late outputs wait for others: one with `after` does not catch up before those are live.

It says nothing about an output that is live. Nor is anything of it durable: who waits follows from the
declarations and states of the outputs, and from how far they are.

Invariant: an output comes after outputs that were declared before it, so there is no circle, and among those that
wait for each other there is one that waits for nobody.

>>> after, states = {"b": ("a",), "c": ("b",)}, {"a": "catching_up", "b": "planned", "c": "planned"}
>>> waiting(after, states, late={"a", "b", "c"}), waiting(after, {**states, "a": "live"}, late={"b", "c"})
({'b': ('a',), 'c': ('b',)}, {'c': ('b',)})
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["waiting"]


def waiting(
    after: Mapping[str, Collection[str]], states: Mapping[str, str], *, late: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the late outputs that wait, each with those that it waits for.

    after: in the order of declaration. states: of all outputs, as the board has them.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, first in after.items():
        missing = tuple(one for one in first if states[one] != "live")
        if missing and name in late:
            found[name] = missing
    return found
