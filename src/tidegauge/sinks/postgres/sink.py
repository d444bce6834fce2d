"""A table in PostgreSQL as an output: tasks stage files, the driver COPYs them, and the upper is in the transaction.

    tasks     rows -> Parquet files in a folder that the driver sees
    driver    those of a span of epochs -> COPY -> one transaction, with the table's row of `tidegauge.progress`

Invariant: every reader of the database sees, of each epoch, all of its rows or none, each once. The upper is in that
database alone, so a backup of it has both.

>>> sink = PostgresSink("postgresql://ada@db/shop", "orders", password="env:SHOP_PASSWORD")
>>> sink.identity
'postgres:db:5432/shop/public.orders'
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.leftout import KeptByKey
from tidegauge.postgres.address import checked_address, database_identity, reached
from tidegauge.sinks.attempt import STAGED
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.envelope import Envelope, check_envelope, named_columns
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.postgres.place import TableName
from tidegauge.sinks.postgres.staging import CheckedStager
from tidegauge.sinks.postgres.types import check
from tidegauge.sinks.protocol import OutputId
from tidegauge.sinks.temporary import make_if_own, own_folder, staging_folder

if TYPE_CHECKING:
    from tidegauge.sinks.postgres.connection import PostgresServer
    from tidegauge.sinks.postgres.table import ServerTable

__all__ = ["PostgresSink"]

_UNSAFE: Final = re.compile(r"[^\w.-]")
_USER: Final = re.compile(r"//[^@/?]*@")


@dataclass(frozen=True, slots=True)
class PostgresSink:
    """Write an output to a table in PostgreSQL, which the first commit creates unless it is there and empty.

    The table belongs to one output. Others may read it, and delete rows of it.

    Args:
        dsn: `postgresql://user@host/database`, as psql takes it, without a password.
        table: `table` or `schema.table`; without a schema it is in `public`.
        password: a reference, `env:NAME` or `file:PATH`. None for what psql would use: `PGPASSWORD`, `~/.pgpass`, a
            certificate.
        envelope: `"append"`, to add each row; or `"upsert"`, to keep the last row of each key, and none for a true
            `deleted` column or the operation `delete`.
        key: for upserts, the key column, or columns. A table that is there has a unique index of exactly these.
        order: for upserts, the column whose greatest value marks the last row of a key in an epoch.
        deleted: for upserts, a column of booleans; true takes the row of the key away. The table does not have it.
        staging: a folder that the driver and the tasks share, needed if they are on several machines. None stands for
            a folder in the system's temporary directory.

    Raises `InvalidArgument`, `InvalidPostgresUrl`, `SecretInClear`, `UnsupportedLocation`.
    """

    dsn: str
    table: str
    _: KW_ONLY
    password: str | None = None
    envelope: Envelope = "append"
    key: str | Sequence[str] | None = None
    order: str | None = None
    deleted: str | None = None
    staging: str | None = None

    def __post_init__(self) -> None:
        checked_address(self.dsn, self.password)
        TableName.parse(self.table)
        object.__setattr__(self, "key", named_columns("PostgresSink", "key", self.key))
        others = {"key": self.key, "order": self.order, "deleted": self.deleted}
        check_envelope("PostgresSink", self.envelope, self.key, others)
        object.__setattr__(self, "staging", staging_folder(self.staging, sink="PostgresSink"))

    @property
    def applies(self) -> bool:
        """Whether it takes rows with an operation: an upsert does."""
        return self.envelope == "upsert"

    @property
    def _layout(self) -> Keyed | None:
        """How rows become changes; None where they are added."""
        return Keyed.of(self.key, self.order, self.deleted) if self.applies and self.key is not None else None

    @property
    def keeps(self) -> KeptByKey | None:
        """How a table by key fills in what changes leave out; None where rows are added."""
        return None if (layout := self._layout) is None else KeptByKey(layout.key, layout.order)

    @property
    def identity(self) -> str:
        """The table in its database, as any user. A host of several names is several to it."""
        return f"{database_identity(self.dsn)}/{TableName.parse(self.table)}"

    @property
    def shared(self) -> bool:
        """False: the table belongs to one output."""
        return False

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON, with a reference in place of a password."""
        named = {name: getattr(self, name) for name in ("password", "key", "order", "deleted")}
        said = {name: list(v) if isinstance(v, tuple) else v for name, v in named.items() if v is not None}
        where = {} if self.staging == own_folder() else {"staging": self.staging}
        how = {"envelope": "upsert"} if self.applies else {}
        return {"kind": "postgres", "dsn": self.dsn, "table": self.table, **how, **said, **where}

    def check(self, schema: pa.Schema) -> None:
        """Raise `ServerColumnUnfit`, `UnsupportedColumn`, `InvalidColumnName` or `EpochColumnMissing` when rows could
        not be written, and `KeyedColumnUnfit` when they could not be changes by key. Does not ask the server."""
        columns = rows_schema(schema)
        if (layout := self._layout) is not None:
            layout.check(columns)
            columns = layout.columns(columns)
        check(columns)

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation that the table's progress names, None where there is none. Raises as `open` does."""
        from tidegauge.sinks.postgres.progress import progress_number, read

        with self._server().looking() as cursor:
            row = read(cursor, TableName.parse(self.table), lock=False) if progress_number(cursor) else None
        return row.incarnation if row is not None and (row.flow, row.output) == (flow, output) else None

    def open(self, output: OutputId) -> ServerTable:
        """Return the present table. Asks the server, and changes nothing there.

        Raises `TableOfAnotherIncarnation`, `ForeignTable` for a table that this output did not write,
        `ProgressApart`, errors of the server.
        """
        from tidegauge.sinks.postgres.table import ServerTable  # psycopg: tasks only stage

        name = TableName.parse(self.table)
        return ServerTable(self._server(), name, output, layout=self._layout, folder=self._folder)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> CheckedStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        if self.applies:
            return self.stage_from(0, schema, job=job, task=task)
        from tidegauge.sinks.staging import ParquetStager  # what writes Parquet is for those who do

        inner = ParquetStager(self._place(), f"{STAGED}/{job}", schema, job=job, task=task)
        return CheckedStager(inner, schema)

    def stage_from(self, least: int, schema: pa.Schema, *, job: str, task: int) -> CheckedStager:
        """Return a writer of changes by key. No row of the table gets an epoch before `least` from them."""
        from tidegauge.sinks.keyed.runs import RunStager

        if (layout := self._layout) is None:
            raise ValueError("rows that are added are no changes")
        inner = RunStager(self._place(), layout, schema, table=self.table, job=job, task=task, least=least)
        return CheckedStager(inner, schema)

    def _server(self) -> PostgresServer:
        from tidegauge.sinks.postgres.connection import PostgresServer

        settings, secrets = reached(self.dsn, self.password)
        return PostgresServer(settings, secrets, self.table)

    def _place(self) -> LocalFiles:
        make_if_own(self.staging, sink="PostgresSink")
        return LocalFiles(self._folder)

    @property
    def _folder(self) -> str:
        """The folder of this table alone, by the text of its address: tasks need no client to take that apart."""
        mark = hashlib.blake2b(_USER.sub("//", self.dsn).encode(), digest_size=6).hexdigest()
        return f"{self.staging}/{_UNSAFE.sub('_', self.table)}-{mark}"
