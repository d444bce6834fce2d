"""What is bound is a pure decision: laws for every listing and every bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.kafka.probing import TopicListing, admitted, newcomers

PARTITIONS = [f"t-{number}" for number in range(4)] + ["u-0"]


@st.composite
def situations(draw: st.DrawFn) -> tuple[Bound, TopicListing, dict[str, int], int]:
    """A bound, a listing that may lack partitions and have lost records, and where new partitions begin.

    A partition can begin after its end: the committed records end where the first append of an open transaction
    begins, and somebody removed a part of that.
    """
    known = draw(st.sets(st.sampled_from(PARTITIONS)))
    starts = {p: draw(st.integers(0, 30)) for p in PARTITIONS}
    frontier = {p: draw(st.integers(0, 20)) for p in known}
    listed = draw(st.sets(st.sampled_from(PARTITIONS)))
    ends = {p: frontier.get(p, 0) + draw(st.integers(0, 40)) for p in listed}
    lows = {p: draw(st.integers(0, end + 3)) for p, end in ends.items()}
    bound = Bound(
        frontier=Frontier(frontier), details={p: {"topic_id": "A", "start": starts[p]} for p in sorted(known)}
    )
    listing = TopicListing({"t": "A", "u": "A"}, lows, ends)
    grown, _ = newcomers(bound, listing)
    return bound, listing, {p: 0 if p in grown else starts[p] for p in PARTITIONS}, draw(st.integers(1, 60))


@given(situations())
def test_nothing_goes_back_nothing_passes_the_end_and_the_limit_holds_but_for_new_partitions(
    situation: tuple[Bound, TopicListing, dict[str, int], int],
) -> None:
    bound, listing, starts, limit = situation
    grown, _ = newcomers(bound, listing)
    found = admitted(bound, listing, starts, whole=grown, limit=limit)
    assert bound.frontier.less_equal(found.upper)
    assert found.upper.less_equal(found.end)
    assert found.more == (found.upper != found.end)
    for partition in grown:
        assert found.upper[partition] == listing.ends[partition]  # T41: whole, whatever the limit
    begins = {p: max(bound.frontier[p], min(_start(bound, starts, p), end)) for p, end in listing.ends.items()}
    taken = 0
    for partition, begin in begins.items():
        low = min(listing.lows[partition], listing.ends[partition])
        first = max(begin, _start(bound, starts, partition))  # what is before it is not part of the source
        lost = found.lost.get(partition)
        assert lost == ((first, listing.lows[partition]) if listing.lows[partition] > first else None)
        taken += max(0, found.upper[partition] - max(begin, low)) if partition not in grown else 0
    own = sum(listing.ends[p] - max(begins[p], min(listing.lows[p], listing.ends[p])) for p in grown)
    assert taken <= max(0, limit - own)
    for partition in bound.frontier:
        if partition not in listing.ends:
            assert found.upper[partition] == bound.frontier[partition]  # an absence is no deletion
    assert found.details.keys() == listing.ends.keys() - bound.details.keys()


def _start(bound: Bound, starts: dict[str, int], partition: str) -> int:
    detail = bound.details.get(partition)
    return starts[partition] if detail is None else int(detail["start"])


@given(situations())
def test_a_decision_depends_on_what_is_bound_and_listed_alone_not_on_their_order(
    situation: tuple[Bound, TopicListing, dict[str, int], int],
) -> None:
    bound, listing, starts, limit = situation
    grown, _ = newcomers(bound, listing)
    lows, ends = (dict(reversed([*side.items()])) for side in (listing.lows, listing.ends))
    turned = TopicListing(listing.ids, lows, ends)
    one = admitted(bound, listing, starts, whole=grown, limit=limit)
    other = admitted(bound, turned, starts, whole=grown, limit=limit)
    assert one == other
