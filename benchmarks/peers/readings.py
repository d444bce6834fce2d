"""The readings of tide gauges, and what users would write about them: the same objects on every side.

A reading is `(port, centimetres)`. The task: relate each to the chart's datum, keep the high ones, count by port.

>>> list(map(related, readings(3)))
[('port-000', 120), ('port-019', 151), ('port-038', 182)]
>>> [is_high(related(reading)) for reading in (("port-000", 99), ("port-000", 500))]
[False, True]
"""

from __future__ import annotations

__all__ = ["DATUM", "HIGH", "PORTS", "Reading", "is_high", "port_of", "readings", "related"]

Reading = tuple[str, int]

PORTS = tuple(f"port-{number:03d}" for number in range(100))
DATUM = 120
"""How far the gauges' zero lies above the chart's datum, in centimetres."""
HIGH = 500
"""From which height above datum, in centimetres, a reading counts."""


def readings(count: int) -> list[Reading]:
    """Return `count` readings of 100 ports between 0 and 999 cm, mixed but always the same."""
    return [(PORTS[19 * i % 100], 31 * i % 1000) for i in range(count)]


def related(reading: Reading) -> Reading:
    """Return the reading above datum."""
    return reading[0], reading[1] + DATUM


def is_high(reading: Reading) -> bool:
    """Whether a reading above datum counts."""
    return reading[1] >= HIGH


def port_of(reading: Reading) -> str:
    """Return what readings are counted by."""
    return reading[0]
