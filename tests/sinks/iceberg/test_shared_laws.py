"""Tests of all tables, on those of Iceberg: files taken out, rows replaced, histories, refusals."""

# ruff: noqa: F401 - what is imported are tests

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.conftest import SCHEMA, Bench, Kind
from tests.sinks.iceberg.conftest import catalog_in
from tests.sinks.test_files_taken_out import (
    test_a_commit_that_moves_no_upper_takes_out_files_and_puts_as_many_rows_in as test_a_commit_moves_no_rows,
)
from tests.sinks.test_files_taken_out import (
    test_a_file_that_is_not_held_any_more_is_not_taken_out_and_nothing_changes as test_a_file_that_is_not_held,
)
from tests.sinks.test_files_taken_out import (
    test_a_replacement_whose_answer_was_lost_is_made_once as test_a_replacement_is_made_once,
)
from tests.sinks.test_files_taken_out import (
    test_an_epoch_within_a_commit_that_took_rows_out_cannot_be_read_alone as test_an_epoch_within_a_commit,
)
from tests.sinks.test_files_taken_out import (
    test_epochs_are_still_of_the_commits_that_brought_them as test_epochs_are_of_their_commits,
)
from tests.sinks.test_files_taken_out import (
    test_files_are_replaced_in_one_commit_that_moves_no_upper_and_the_table_goes_on as test_files_are_replaced,
)
from tests.sinks.test_files_taken_out import (
    test_of_two_drivers_that_replace_the_same_files_one_wins as test_one_of_two_replacements_wins,
)
from tests.sinks.test_files_taken_out import (
    test_rows_are_taken_out_with_the_epochs_that_do_it_and_earlier_epochs_stay_readable as test_rows_are_taken_out,
)
from tests.sinks.test_files_taken_out import three as three
from tests.sinks.test_kept_history import (
    test_a_commit_to_a_table_of_another_history_is_refused as test_another_history,
)
from tests.sinks.test_kept_history import (
    test_a_table_keeps_the_digest_at_its_upper_and_the_links_of_all_commits as test_links_are_kept,
)
from tests.sinks.test_kept_history import (
    test_a_table_that_a_version_without_digests_wrote_has_one_from_its_next_commit_on as test_no_digest,
)
from tests.sinks.test_kept_history import (
    test_the_incarnation_of_a_table_is_known_without_its_store as test_the_incarnation_is_known,
)
from tests.sinks.test_replaced_rows import (
    test_an_append_that_was_first_refuses_the_replacement as test_an_append_that_was_first,
)
from tests.sinks.test_replaced_rows import test_it_is_replaced_again_and_again as test_it_is_replaced_again
from tests.sinks.test_replaced_rows import (
    test_one_that_is_taken_back_is_not_made_any_more_and_the_next_is as test_one_that_is_taken_back,
)
from tests.sinks.test_replaced_rows import (
    test_other_rows_take_the_place_of_all_and_the_table_goes_on_after_them as test_other_rows_take_the_place,
)
from tests.sinks.test_replaced_rows import (
    test_the_rows_of_the_new_edition_may_have_other_columns as test_other_columns,
)
from tests.sinks.test_replaced_rows import test_what_only_moves_files_about_is_no_hindrance as test_moved_files
from tests.sinks.test_replaced_rows import test_whoever_slept_finds_another_table as test_whoever_slept
from tests.sinks.test_sink_conformance import test_each_refusal_is_an_error_of_its_own as test_each_refusal

from tidegauge.sinks import IcebergSink

pytestmark = pytest.mark.long


def sink_at(path: str) -> IcebergSink:
    """The table whose folder this is."""
    place = Path(path)
    return IcebergSink(f"{place.parent.name}.{place.name}", str(place.parent.parent))


def read(path: str) -> Any:
    place = Path(path)
    if not (place.parent.parent / "catalog.db").exists():
        return SCHEMA.empty_table()
    catalog = catalog_in(place.parent.parent)
    name = (place.parent.name, place.name)
    return catalog.load_table(name).scan().to_arrow() if catalog.table_exists(name) else SCHEMA.empty_table()


ICEBERG = Kind("iceberg", sink_at, read)


@dataclass(frozen=True)
class TableInACatalog(Bench):
    def remove(self) -> None:
        place = Path(self.path)
        catalog_in(place.parent.parent).drop_table((place.parent.name, place.name))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    path = str(tmp_path / "lake" / "orders")
    return TableInACatalog(ICEBERG, path, sink_at(path))


@pytest.fixture
def kinds() -> Callable[[str, str], Bench]:
    return lambda kind, path: TableInACatalog(ICEBERG, path, sink_at(path))
