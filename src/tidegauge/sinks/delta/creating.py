"""The first version of a Delta table, which delta-rs writes: its protocol, its columns, and the first files.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     create(folder, pa.schema([("_epoch", pa.int64())]), [], {"shop:orders": 4}, {"lower": 0})
...     DeltaTable(folder).transaction_version("shop:orders")
4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions

from tidegauge.objects.address import is_address
from tidegauge.objects.client import RETRIES, RETRY_SECONDS
from tidegauge.sinks.location import at, make_folder
from tidegauge.sinks.protocol import StagedFile

__all__ = ["create", "snapshot"]

_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def snapshot(folder: str, version: int | None = None) -> DeltaTable:
    """Return a version of a table, or its newest one. Raises `DeltaError`, `TableNotFoundError` without a table."""
    return DeltaTable(folder, version=version, storage_options=_options(folder))


def _options(folder: str) -> dict[str, str] | None:
    """Return how often delta-rs is to ask a store again; what else it needs it finds as our own client does."""
    if not is_address(folder):
        return None
    return {"max_retries": str(RETRIES), "retry_timeout": f"{RETRY_SECONDS}s"}


def create(
    folder: str,
    columns: pa.Schema,
    adding: Sequence[tuple[StagedFile, int, str]],
    vouching: Mapping[str, int],
    said: Mapping[str, Any],
    *,
    partition: Sequence[str] = (),
) -> None:
    """Create a table with files, each with when it was written and its statistics.

    partition: the columns that it is parted by. vouching: the application transactions. said: what the entry has for
    people and for us. Raises `DeltaError` where there is a table already.
    """
    make_folder(at(folder))
    create_table_with_add_actions(
        folder,
        Schema.from_arrow(columns),
        [AddAction(f.path, f.bytes, dict(f.partition), at, True, text) for f, at, text in adding],  # noqa: FBT003 - data_change
        mode="error",
        partition_by=list(partition),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(owner, version) for owner, version in vouching.items()],
            custom_metadata=dict(said),
            max_commit_retries=0,
        ),
        post_commithook_properties=_NO_HOOKS,
        storage_options=_options(folder),
    )
