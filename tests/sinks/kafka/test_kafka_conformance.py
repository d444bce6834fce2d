"""A topic as an output holds what every sink must hold, but for what is of tables alone."""

from __future__ import annotations

from tests.sinks import test_sink_conformance as every

OF_TABLES = {
    # what a sink to a path says of itself, and which paths it takes
    "test_a_sink_is_a_picklable_value_that_describes_itself",
    "test_only_mounted_file_systems_are_taken_and_no_secret_is_shown",
    "test_a_relative_path_is_that_of_the_program_and_not_of_the_task",
    # a topic has no columns: what its messages hold may change, as that of any topic
    "test_the_columns_of_a_table_are_known_from_its_first_commit_on",
    "test_rows_with_other_columns_are_refused_and_the_difference_is_said",
    # it has no files, and several outputs may write to it
    "test_committed_files_come_back_in_commit_order_with_their_epochs_and_can_be_read",
    "test_a_table_of_another_output_is_refused",
    # with errors of their own: in test_kafka_sink.py
    "test_a_staged_file_that_is_gone_or_was_changed_is_not_committed",
    "test_a_table_that_was_removed_is_noticed_at_the_next_commit",
    "test_a_table_that_was_made_anew_in_its_place_is_noticed",
}
assert set(vars(every)) >= OF_TABLES
globals().update({name: test for name, test in vars(every).items() if name[:5] == "test_" and name not in OF_TABLES})
