"""A frontier as canonical JSON, with the kind of its clock: one form for all kinds, as a frontier is one thing.

    {"kind":"gtid","next":{PARTITION:POSITION,...},"sealed":false}

Invariants: `decode(t, encode(t, f)) == f`, and frontiers are equal iff their texts are, byte for byte. What is
decoded has only places that its kind has. A frontier is never read as one of another kind: 17 polls are not the
LSN 0/11.

>>> from tidegauge.remap.fromtime.lsn import LSN
>>> encode(LSN, Frontier({"wal": 2**53 + 1}))
'{"kind":"lsn","next":{"wal":9007199254740993},"sealed":false}'
>>> decode(LSN, _)
Frontier({'wal': 9007199254740993})
"""

from __future__ import annotations

from tidegauge.errors.fromtime import FromTimeChanged, NotCanonical
from tidegauge.remap.fromtime.canonical import dump, load
from tidegauge.remap.fromtime.protocol import LONGEST_TEXT, FromTime, checked, excerpt
from tidegauge.remap.frontier import Frontier

__all__ = ["decode", "encode"]


def encode(from_time: FromTime, frontier: Frontier) -> str:
    """Return the canonical text of a frontier. Raises `InvalidPlace`."""
    positions = dict(checked(from_time, frontier).items())
    return dump({"kind": from_time.kind, "next": positions, "sealed": frontier.sealed})


def decode(from_time: FromTime, text: str) -> Frontier:
    """Return the frontier of a canonical text. Raises `NotCanonical`, `FromTimeChanged` or `InvalidPlace`."""
    try:
        found = load(text, limit=LONGEST_TEXT)
    except ValueError as error:
        raise NotCanonical(thing="frontier", problem=str(error)) from error
    match found:
        case {"kind": str(kind), "next": dict(positions), "sealed": bool(sealed)} if len(found) == 3:
            pass
        case _:
            raise NotCanonical(thing="frontier", problem='it is no object of "kind", "next" and "sealed"')
    if kind != from_time.kind:
        raise FromTimeChanged(stored=excerpt(kind), declared=from_time.kind)
    for position in positions.values():
        if type(position) is not int or position <= 0:
            raise NotCanonical(thing="frontier", problem="a position is no integer above 0")
    return checked(from_time, Frontier(positions, sealed=sealed))
