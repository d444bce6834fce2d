"""The first version of a Delta table, which delta-rs writes: its protocol, its columns, and the first files.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     create(folder, pa.schema([("_epoch", pa.int64())]), [], {"shop:orders": 4}, {"lower": 0})
...     DeltaTable(folder).transaction_version("shop:orders")
4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions

from tidegauge.sinks.location import make_folder
from tidegauge.sinks.protocol import StagedFile

__all__ = ["DeltaTable", "create"]

_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def create(
    folder: str,
    columns: pa.Schema,
    adding: Sequence[tuple[StagedFile, int, str]],
    vouching: Mapping[str, int],
    said: Mapping[str, Any],
) -> None:
    """Create a table with files, each with when it was written and its statistics.

    vouching: the application transactions. said: what the entry has for people and for us. Raises `DeltaError` where
    there is a table already.
    """
    make_folder(Path(folder))
    create_table_with_add_actions(
        folder,
        Schema.from_arrow(columns),
        [AddAction(f.path, f.bytes, {}, at, True, text) for f, at, text in adding],  # noqa: FBT003 - data_change
        mode="error",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(owner, version) for owner, version in vouching.items()],
            custom_metadata=dict(said),
            max_commit_retries=0,
        ),
        post_commithook_properties=_NO_HOOKS,
    )
