"""What an epoch costs in questions and transactions: each is asked once, and nothing is parsed that was before.

On a slow machine a run may look at its source once more, or renew its lease; so these are counted, too.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from scripts.walk import Walk, walked

from tidegauge.testing import Endpoint


@pytest.fixture(scope="module")
def walks(kafka_broker: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> tuple[Walk, Walk]:
    """The opening of a flow that has run before, and its run of one message."""
    topic = kafka_broker.create_topic(f"each-step-once-{uuid4()}")  # of each worker that runs these tests
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegauge.job.perform.GOOD_FOR", timedelta(hours=1))  # however slow the machine is
        return walked(kafka_broker, topic, tmp_path_factory.mktemp("walk"))


def test_the_broker_is_asked_three_times_by_a_look_once_by_a_read_and_three_times_to_acknowledge(
    walks: tuple[Walk, Walk],
) -> None:
    opening, running = walks
    looks = running.times("probe")
    assert looks >= running.times("plan") == 1
    assert running.requests == {
        "describe_topics": looks + 3,  # whether the topic is still the same: after a read, and before it is told
        "list_offsets": 2 * looks,  # where partitions begin, and where they end
        "committed": 2,  # what the flow holds is told at the start, and was taken long ago
        "commit": 1,
    }
    assert not opening.requests


def test_an_epoch_is_two_transactions_that_write_and_a_look_at_the_lease_before_each_effect_elsewhere(
    walks: tuple[Walk, Walk],
) -> None:
    _opening, running = walks
    renewals = running.times("renewal of the lease")
    assert running.times("transaction of the store that writes") - renewals == 2  # append bindings, publish
    assert running.times("question for losses to tell") == 0  # the store knew of none when the flow was opened
    # At the start what is held is told, and it is asked whether another flow follows.
    assert running.times("transaction of the store") - renewals == 4 + 1 + 1
    assert running.times("look at the lease") - renewals == 4 + 1
    assert running.times("commit of the table") == 1


def test_what_the_opening_found_is_not_found_again(walks: tuple[Walk, Walk]) -> None:
    _opening, running = walks
    assert running.times("canonical.dump") == 0  # no source's state is decoded that is compared with nothing
    entered = {*running.modules}
    assert entered.isdisjoint({"operations.py", "remap/store/losses.py", "flow/belonging.py", "flow/pushing.py"})


def test_nothing_is_parsed_or_derived_that_was_when_the_flow_was_made(walks: tuple[Walk, Walk]) -> None:
    _opening, running = walks
    for step in ("Settings.of", "Start.of", "named", "key_and_value", "rows_schema"):
        assert running.times(step) == 0, step


def test_rows_are_conformed_to_the_source_and_to_the_output_and_held_against_the_table(
    walks: tuple[Walk, Walk],
) -> None:
    _opening, running = walks
    assert (running.times("conform"), running.times("fit")) == (2, 1)
