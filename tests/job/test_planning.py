"""What a job says of a source that cannot be planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import FileGone
from tidegauge.job.perform import plan
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.round import Failure

A, B = Slice("both", 3, "a", 0, 5), Slice("both", 3, "b", 0, 5)


class GivingUp:
    """A source that gives up the ranges of `a`, and whose `b` is another upstream."""

    unit = "records"
    schema = None
    loss = "TG-0321"

    def lost(self, slices: Sequence[Slice], _bound: Bound) -> list[Slice]:
        return [piece for piece in slices if piece.partition == "a"]

    def plan(self, slices: Sequence[Slice], _bound: Bound) -> list[Any]:
        for piece in slices:
            if piece.partition == "a":
                raise FileGone(path="a", lower=0, upper=5)
            raise UpstreamRecreated(source="both", known="x", found="y")
        return []


def test_the_failure_of_a_source_that_gives_up_some_ranges_is_that_of_the_others() -> None:
    source: Any = GivingUp()
    found = plan("both", source, [A, B], Bound())
    assert isinstance(found, Failure)
    assert (found.epoch, type(found.error)) == (3, UpstreamRecreated)
