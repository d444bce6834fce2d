"""What a source says of itself is checked before it is bound, because what is bound is for good.

Invariant: a probe that passes has only places that the source's clock has, in its partitions and positions, and a
state whose watermark is not behind the one that is bound. What does not pass is an error of the source: nothing of it
is bound, the source is stalled and asked again, and the others go on.

Only what moved is looked at: the rest was looked at when it was bound.

>>> from datetime import UTC, datetime
>>> from tidegauge.remap.fromtime import LSN
>>> from tidegauge.remap.frontier import Frontier
>>> there = Frontier({"wal": 2**63})
>>> checked_probe("orders", LSN, Bound(), Probe(at=datetime(2026, 11, 20, tzinfo=UTC), upper=there, end=there))
Traceback (most recent call last):
tidegauge.errors.fromtime.InvalidPlace: TG-0571: the clock 'lsn' has no position 9223372036854775808 in ...
"""

from __future__ import annotations

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import WatermarkRegressed
from tidegauge.remap.binding import Bound, Probe
from tidegauge.remap.fromtime.protocol import FromTime, check_place
from tidegauge.remap.fromtime.state import SourceState
from tidegauge.remap.frontier import Frontier

__all__ = ["check_watermark", "checked_probe"]


def checked_probe(source: str, from_time: FromTime, bound: Bound, probe: Probe) -> Probe:
    """Return the probe, all of which may be bound. Raises `InvalidPlace`, `InvalidArgument`, `WatermarkRegressed`."""
    if not isinstance(probe, Probe):
        raise InvalidArgument(parameter=f"the probe of {source!r}", value=probe, expected="a Probe")
    for frontier in (probe.upper, probe.end):
        if not isinstance(frontier, Frontier):
            raise InvalidArgument(parameter=f"a frontier of {source!r}", value=frontier, expected="a Frontier")
    if probe.at.tzinfo is None:
        raise InvalidArgument(parameter=f"the time of {source!r}", value=probe.at, expected="one with its zone")
    for partition, (_, position) in probe.upper.since(bound.frontier).items():
        check_place(from_time.kind, partition, position)
        from_time.check(partition, position)
    for partition in probe.details:
        check_place(from_time.kind, partition, 0)
    if probe.state is not None and not isinstance(probe.state, SourceState):
        raise InvalidArgument(
            parameter=f"the state of {source!r}", value=type(probe.state).__name__, expected="a SourceState"
        )
    check_watermark(source, bound.state, probe.state)
    return probe


def check_watermark(source: str, before: SourceState | None, after: SourceState | None) -> None:
    """Raise `WatermarkRegressed` when a state says less of how complete the data is than the one before it."""
    if before is None or after is None or before.watermark is None:
        return
    if after.watermark is None or after.watermark < before.watermark:
        found = "none" if after.watermark is None else after.watermark.isoformat()
        raise WatermarkRegressed(source=source, known=before.watermark.isoformat(), found=found)
