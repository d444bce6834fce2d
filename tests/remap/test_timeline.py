"""What a source is told of its bindings belongs to one instant, also while later epochs are bound."""

from __future__ import annotations

from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import RemapTable
from tidegauge.remap.timeline import Timeline


def proposal(position: int) -> Proposal:
    return Proposal(frontier=Frontier({"log": position}), details={"log": {"head": position}})


def test_bound_knowledge_that_was_handed_out_does_not_change_when_more_is_bound() -> None:
    timeline = Timeline({"s": RemapTable("s")})
    timeline.append(0, {"s": proposal(1)})
    earlier = timeline.bound("s")
    timeline.append(1, {"s": proposal(2)})
    now = timeline.bound("s")
    assert (earlier.frontier["log"], earlier.details["log"]["head"]) == (1, 1)
    assert (now.frontier["log"], now.details["log"]["head"]) == (2, 2)
