"""What the failure of a transaction, or of a message, means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.base import Definite, Transient
from tidegauge.errors.kafkasink import TransactionTooLong, WriterFenced
from tidegauge.sinks.kafka.messages import MessageLayout
from tidegauge.sinks.kafka.output import transactional_id
from tidegauge.sinks.kafka.progress import key_of
from tidegauge.sinks.kafka.verdict import Facts, Loss, failed, refused
from tidegauge.sinks.protocol import OutputId

FENCED = {-144, 47, 90}
LAPSED = {48, 49, 120, -150, -172}
REFUSED = {10, 18, 32, 44, 87}
codes = st.sampled_from([*FENCED, *LAPSED, *REFUSED, -190]) | st.integers(-200, 130)


@given(codes, st.floats(0, 100))
def test_a_transaction_ends_this_driver_when_it_was_fenced_and_is_tried_again_otherwise(
    code: int, elapsed: float
) -> None:
    error = failed(code, "x", Facts("t", "f:o:t", lower=2, upper=5, elapsed=elapsed, limit=60))
    if elapsed >= 60 and code in FENCED | LAPSED:
        assert isinstance(error, TransactionTooLong)  # trying again takes as long again
        assert (error.evidence["lower"], error.evidence["last"]) == (2, 4)
    elif code in FENCED:
        assert isinstance(error, WriterFenced)
    else:
        assert isinstance(error, Transient)
    assert not isinstance(error, Definite)


@pytest.mark.parametrize("partition", [None, "p"])
@given(code=codes)
def test_what_is_wrong_with_a_message_is_definite_and_says_its_epoch(partition: str | None, code: int) -> None:
    error = refused(MessageLayout("t", partition=partition), 7, code, "x", size=9, partition=3)
    if code in REFUSED or (code == -190 and partition):
        assert isinstance(error, Definite)
        assert error.evidence["epoch"] == 7
    else:
        assert error is None


@given(st.permutations([(-138, False), (-152, True), (-151, True), (87, True), (87, False), (10, True)]))
def test_of_what_was_lost_together_the_reason_weighs_most_in_whatever_order_it_is_told(
    told: list[tuple[int, bool]],
) -> None:
    losses = [Loss(0, code, "x", size=1, partition=0, keyed=keyed) for code, keyed in told]
    for without in (None, (10, True), (87, False), (87, True)):
        losses = [loss for loss in losses if (loss.code, loss.keyed) != without]
        found = max(losses, key=lambda loss: loss.weight)
        reasons = [loss for loss in losses if loss.code > 0]
        assert (found in reasons) == bool(reasons)
    large = [Loss(0, 10, "x", size=size, partition=0, keyed=True) for size in (5, 9, 7)]
    assert max(large, key=lambda loss: loss.weight).size == 9


def test_a_prefix_is_of_the_id_alone_so_that_another_one_loses_no_progress() -> None:
    output = OutputId("shop", "orders", "a" * 32)
    assert transactional_id(output, "t", prefix="") == key_of(output, "t") == "shop:orders:t"
    assert transactional_id(output, "t", prefix="team.") == "team.shop:orders:t"
