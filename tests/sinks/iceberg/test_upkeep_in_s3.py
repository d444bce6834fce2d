"""Tests of tables of Iceberg on a disk, on those in an object store: packs, expiry, new columns."""

# ruff: noqa: F401 - what is imported are tests

from __future__ import annotations

import pytest
from tests.sinks.iceberg.test_iceberg_evolving import (
    test_an_answer_that_was_lost_brings_columns_once as test_an_answer_brings_columns_once,
)
from tests.sinks.iceberg.test_iceberg_evolving import (
    test_the_commit_that_brings_columns_is_one_with_the_upper as test_the_commit_that_brings_columns,
)
from tests.sinks.iceberg.test_iceberg_in_s3 import bench as bench
from tests.sinks.iceberg.test_iceberg_upkeep import (
    test_a_driver_that_commits_between_goes_on_and_so_does_the_pack as test_a_driver_that_commits_between,
)
from tests.sinks.iceberg.test_iceberg_upkeep import (
    test_a_drivers_answer_is_lost_and_a_pack_comes_before_it_looks as test_a_drivers_answer_is_lost,
)
from tests.sinks.iceberg.test_iceberg_upkeep import test_an_error_of_a_pack_is_a_question as test_an_error_of_a_pack
from tests.sinks.iceberg.test_iceberg_upkeep import (
    test_an_error_of_an_expiry_is_a_question as test_an_error_of_an_expiry,
)
from tests.sinks.iceberg.test_iceberg_upkeep import (
    test_of_two_that_pack_one_does_and_the_other_leaves_nothing as test_of_two_that_pack,
)
from tests.sinks.iceberg.test_iceberg_upkeep import (
    test_old_snapshots_go_with_the_files_that_are_only_theirs as test_old_snapshots_go,
)
from tests.sinks.iceberg.test_iceberg_upkeep import (
    test_small_files_become_one_and_every_epoch_is_read_as_before as test_small_files_become_one,
)
from tests.sinks.iceberg.test_iceberg_upkeep import (
    test_what_others_have_deleted_is_not_put_back as test_what_others_have_deleted,
)

pytestmark = pytest.mark.long
