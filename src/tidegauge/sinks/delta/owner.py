"""Whether an output may write to a Delta table: whose it is, how far it has come, and which columns it has.

The first two are in the application transactions that an output's entries carry:

    txn "flow:output"                  the last epoch that the table holds
    txn "flow:output@incarnation"      the same, of this store alone
    txn "flow:output#digest"           the digest of the history up to there (`deltachain`)

Invariant: the first two are equal in every entry of the output; where they differ, a flow with another store has
written the table. Rows that are written to a table have its columns, and it uses nothing that this cannot honour.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa
from deltalake import Schema

from tidegauge.errors.sinks import TableOfAnotherIncarnation, TableSchemaChanged, UnsupportedTable
from tidegauge.sinks.columns import differences, stored
from tidegauge.sinks.delta.chain import digest_id, number, text_of
from tidegauge.sinks.delta.head import DeltaHead, unsupported
from tidegauge.sinks.protocol import OutputId

__all__ = ["check_columns", "columns_of", "digest_in", "life_id", "marks", "own_upper"]


def life_id(output: OutputId) -> str:
    """Return the application id that only entries of this incarnation carry.

    >>> life_id(OutputId("shop", "orders", "1f"))
    'shop:orders@1f'
    """
    return f"{output}@{output.incarnation}"


def marks(output: OutputId, upper: int, said: Mapping[str, str]) -> dict[str, int]:
    """Return the transactions of an entry after which the table holds the epochs before `upper`.

    said: what the entry says of the history (`deltachain.carried`).
    """
    found = {str(output): upper - 1, life_id(output): upper - 1}
    return {**found, digest_id(output): number(said["digest"])} if said else found


def own_upper(head: DeltaHead, table: str, output: OutputId) -> int | None:
    """Return the first epoch that a table does not hold; None where it has no transaction of the output.

    Raises `TableOfAnotherIncarnation`.
    """
    last = head.transactions.get(str(output))
    if last is None:
        return None
    if head.transactions.get(life_id(output)) != last:
        raise TableOfAnotherIncarnation(table=table, output=str(output), incarnation=output.incarnation)
    return last + 1


def digest_in(head: DeltaHead | None, output: OutputId) -> str | None:
    """Return the first digits of the digest of the flow's history up to the upper, None where the log has none."""
    kept = None if head is None else head.transactions.get(digest_id(output))
    return None if kept is None else text_of(kept)


@lru_cache(maxsize=64)
def columns_of(schema: str) -> pa.Schema:
    """Return columns that are given in Delta's JSON."""
    return stored(pa.schema(Schema.from_json(schema).to_arrow()))


def check_columns(folder: str, output: OutputId, head: DeltaHead, columns: pa.Schema) -> None:
    """Raise `UnsupportedTable`, or `TableSchemaChanged` for rows with other columns than the table."""
    feature = unsupported(head)
    if feature is not None:
        raise UnsupportedTable(table=folder, feature=feature)
    detail = differences(columns_of(head.schema), columns)
    if detail:
        raise TableSchemaChanged(table=folder, output=str(output), detail=detail)
