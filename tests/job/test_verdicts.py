"""What the result of a job means for each output: decided by its own failures and those of its source alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.base import Transient
from tidegauge.errors.engine import ExpressionFailed, ReadFailed
from tidegauge.job.plan import JobResult
from tidegauge.job.verdict import judge
from tidegauge.remap.round import Failure

READERS = {"a": "orders", "a2": "orders", "b": "clicks"}
PASSING = ReadFailed(source="orders", place="p0", detail="timed out")
LASTING = ExpressionFailed(output="a", epoch=0, detail="division by zero")

PLACES = [("orders", None), ("clicks", None), *((source, output) for output, source in READERS.items())]
failures = st.builds(
    lambda place, epoch, error: Failure(place[0], place[1], epoch, error),
    st.sampled_from(PLACES),
    st.integers(0, 9),
    st.sampled_from([PASSING, LASTING]),
)


@given(st.lists(failures, max_size=8))
def test_each_output_is_kept_tried_again_or_ends_at_the_least_epoch_that_failed_for_it(found: list[Failure]) -> None:
    verdict = judge(tuple(READERS), JobResult({}, tuple(found)), READERS)
    for output, source in READERS.items():
        ours = [f for f in found if f.output == output or (f.output is None and f.source == source)]
        away = any(f.output is None and isinstance(f.error, Transient) for f in ours)
        stuck = any(f.output == output and isinstance(f.error, Transient) for f in ours)
        assert (output in verdict.kept) == (not ours), "nothing that failed is kept, and nobody else's is lost"
        assert (source in verdict.away) == away
        assert (output in verdict.stuck) == (stuck and not away)
        lasting = [f.epoch for f in ours if not isinstance(f.error, Transient)]
        ends = min(lasting) if lasting and not away and not stuck else None
        assert verdict.ends.get(output) == ends
