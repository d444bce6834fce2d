"""The evidence of real processes, for the checkers of simulated worlds (`tidegauge.testing.simulation.evidence`).

A store is read with plain SQL, a Delta table with `deltalake`, a Parquet folder by its manifests, a topic with a
consumer and an admin client, files with `open`: no code of the system is between them and a checker. Where a server
does not answer, `Away` is raised, and the checker looks later.

Invariant: a question changes nothing. Durable facts only grow, so the one that must not be ahead is asked first:
acknowledgements, then the store at one instant, then the ends of upstreams and the tables.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from tests.chaos.writers import PARTITIONS, order, visit
from tests.flow.kafka.upstream import consumed

from tidegauge.kafka.clients import kafka
from tidegauge.sources.protocol import BadRecord
from tidegauge.testing import Endpoint
from tidegauge.testing.endpoint import quiet
from tidegauge.testing.simulation.ledger import Broken

__all__ = ["Away", "DeltaFolder", "FilesSeen", "KeyedFolder", "ParquetFolder", "StoreSeen", "TablesSeen", "TopicSeen"]

pc: Final[Any] = pyarrow.compute
_ADMIN: Final[Any] = kafka("confluent_kafka.admin")
_WITHIN: Final = 2.0
"""Seconds for an answer of a broker."""


class Away(Exception):
    """Somebody does not answer who has to be asked."""


class StoreSeen:
    """A store in a SQLite file or a PostgreSQL database, read in transactions of one instant."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: Any = None
        self._there = False

    @contextmanager
    def at_one_instant(self) -> Iterator[None]:
        """Let all questions be answered as of now. Raises `Away`."""
        try:
            with closing(self._connect()) as self._connection:
                self._there = self._made()
                yield
        except (psycopg.OperationalError, sqlite3.OperationalError) as error:
            raise Away(f"the store: {error}") from error

    def ask(self, question: str, *values: Any) -> list[Any]:
        """Return the rows of a SELECT; none before a driver has made the tables."""
        return self._execute(question, values) if self._there else []

    @property
    def _server(self) -> bool:
        return not self._address.startswith("sqlite:///")

    def _connect(self) -> Any:
        if self._server:
            opened = psycopg.connect(self._address, connect_timeout=2)
            opened.isolation_level, opened.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
            return opened
        file = self._address.removeprefix("sqlite:///")
        if not os.path.exists(file):
            raise Away("nobody has made the store yet")
        made = sqlite3.connect(file, isolation_level=None, timeout=2)
        made.execute("PRAGMA query_only=ON")
        made.execute("BEGIN")
        return made

    def _made(self) -> bool:
        if self._server:
            return bool(self._execute("SELECT 1 WHERE to_regclass('flows') IS NOT NULL"))
        return bool(self._execute("SELECT 1 FROM sqlite_master WHERE name = 'flows'"))

    def _execute(self, question: str, values: tuple[Any, ...] = ()) -> list[Any]:
        if self._server:
            question = question.replace("?", "%s")
        return list(self._connection.execute(question, values).fetchall())


class DeltaFolder:
    """A Delta table, read by delta-rs."""

    def __init__(self, path: str, application: str) -> None:
        self._path, self._application = path, application
        self._table: DeltaTable | None = None

    def upper(self) -> int:
        """Return the first epoch that it does not hold."""
        table = self._newest()
        version = None if table is None else table.transaction_version(self._application)
        return 0 if version is None else version + 1

    def files(self) -> set[str]:
        """Return the paths of its files."""
        table = self._newest()
        return set() if table is None else set(table.file_uris())

    def packed(self) -> int:
        """Return how many of its commits have packed files."""
        table = self._newest()
        history = [] if table is None else table.history()
        return sum(one.get("operation") == "OPTIMIZE" for one in history)

    def litter(self) -> set[str]:
        """Nothing: what no commit names is for VACUUM to clear away."""
        return set()

    def _newest(self) -> DeltaTable | None:
        try:
            if self._table is None:
                self._table = DeltaTable(self._path)
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            return None
        return self._table


class KeyedFolder:
    """A Delta table by key that has deletion vectors, read by polars."""

    def __init__(self, path: str, application: str) -> None:
        self._path, self._application = path, application

    def state(self) -> tuple[int, dict[int, tuple[int, int]]]:
        """Return the first epoch that it does not hold, and of each key its row's number and epoch, at one version.

        Raises `Broken` where a key has two rows.
        """
        try:
            table = DeltaTable(self._path)
        except TableNotFoundError:
            return 0, {}
        version = table.transaction_version(self._application)
        rows = pl.read_delta(table).select("k", "n", "_epoch").rows() if version is not None else []
        found = {k: (n, epoch) for k, n, epoch in rows}
        if len(found) < len(rows):
            raise Broken("a key has one row", f"{len(rows)} rows of {len(found)} keys, at version {table.version()}")
        return 0 if version is None else version + 1, found


class ParquetFolder:
    """A folder of Parquet files, read by its manifests."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def upper(self) -> int:
        """Return the first epoch that it does not hold."""
        return max((manifest["upper"] for manifest in self._manifests()), default=0)

    def files(self) -> set[str]:
        """Return the paths of its files."""
        return {str(self._path / file["path"]) for found in self._manifests() for file in found["files"]}

    def litter(self) -> set[str]:
        """Return the files that no commit names."""
        return {str(path) for path in self._path.glob("**/part-*")} - self.files()

    def _manifests(self) -> list[Any]:
        """Return the chain of commits."""
        found: list[Any] = []
        upper = 0
        while (folder := self._path / f"from_epoch={upper:012d}").exists():
            found.append(json.loads((folder / "_manifest.json").read_bytes()))
            upper = found[-1]["upper"]
        return found


class TablesSeen:
    """The tables of a flow, by output."""

    def __init__(self, tables: Mapping[str, DeltaFolder | ParquetFolder]) -> None:
        self.tables = tables
        self._held: dict[str, pa.Table] = {}
        """The rows of files; a file that a commit names does not change."""

    def upper(self, name: str) -> int:
        """Return the first epoch that a table does not hold."""
        return self.tables[name].upper()

    def rows(self, name: str, as_of: int | None = None) -> pa.Table:
        """Return the rows of a table, up to an epoch if one is given."""
        found = [self._read(path) for path in sorted(self.tables[name].files())]
        if not found:
            return pa.table({"_epoch": pa.array([], pa.int64())})
        rows = pa.concat_tables(found)
        return rows if as_of is None else rows.filter(pc.less_equal(rows["_epoch"], as_of))

    def litter(self) -> set[str]:
        """Return the files that drivers have left behind."""
        return {path for table in self.tables.values() for path in table.litter()}

    def _read(self, path: str) -> pa.Table:
        if path not in self._held:
            self._held[path] = pyarrow.parquet.ParquetFile(path).read()
        return self._held[path]


class TopicSeen:
    """A topic, and what a group has committed of it: as the broker said when it was asked last.

    A client that had no answer is replaced: the old one may go on asking for a leader that is gone.
    """

    acknowledges = True
    overtaken = False
    made_anew = 0
    spoilt = False

    def __init__(self, broker: Endpoint, topic: str, group: str, schema: pa.Schema) -> None:
        self.schema = schema
        self._broker, self._topic, self._group = broker, topic, group
        self._admin = broker.admin()
        self._member = self._join()
        self._told: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._records: dict[tuple[int, int], int] | None = None

    def ask_told(self) -> None:
        """Ask how far the group is. Raises `Away`."""
        wanted = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
        try:
            places = self._member.committed(wanted, timeout=_WITHIN)
        except KafkaException as error:
            self._member.close()
            self._member = self._join()
            raise Away(f"the broker, asked for the group: {error}") from error
        self._told = {f"{place.topic}-{place.partition}": place.offset for place in places if place.offset > 0}

    def ask_ends(self) -> None:
        """Ask where the committed records end. Raises `Away`."""
        wanted = {TopicPartition(self._topic, number): _ADMIN.OffsetSpec.latest() for number in range(PARTITIONS)}
        level = IsolationLevel.READ_COMMITTED
        try:
            answers = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=_WITHIN)
            ends = {
                f"{self._topic}-{place.partition}": answer.result(2 * _WITHIN).offset
                for place, answer in answers.items()
            }
            if unheard := [partition for partition, end in ends.items() if end < 0]:
                raise TimeoutError(f"no answer for {unheard[0]}")  # what the client tells of a broker that gave none
        except (KafkaException, TimeoutError) as error:
            self._admin = self._broker.admin()
            raise Away(f"the broker, asked for ends: {error}") from error
        self._ends = ends

    def _join(self) -> Consumer:
        return Consumer(quiet(self._broker.servers, **{"group.id": self._group}))

    def close(self) -> None:
        """Take leave of the broker."""
        self._member.close()

    def records(self) -> dict[tuple[int, int], int]:
        """Return the numbers of all committed records by partition and offset. Nobody writes any more."""
        if self._records is None:
            ends = [self._ends[f"{self._topic}-{number}"] for number in range(PARTITIONS)]
            self._records = consumed(self._broker.servers, self._topic, [0] * PARTITIONS, ends)
        return self._records

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:
        """Return the partition: it is named after its topic, which says all."""
        return partition

    def there(self) -> dict[str, int]:
        """Return the ends of the partitions that have something."""
        return {partition: end for partition, end in self._ends.items() if end > 0}

    def end(self, place: str) -> int:
        """Return the end of a place."""
        return self._ends[place]

    def start(self, place: str) -> int:
        """Return 0."""
        return 0

    def told(self) -> Mapping[str, int]:
        """Return the offsets that are committed for the group."""
        return self._told

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a range."""
        number = int(place.rpartition("-")[2])
        held = self.records()
        found = [order(held[number, at]) for at in range(lower, upper) if (number, at) in held]
        return [pa.RecordBatch.from_pylist(found, schema=self.schema)]

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:
        """Nothing."""
        return []

    def blurred(self, place: str, lower: int, upper: int) -> bool:
        """False."""
        return False


class FilesSeen:
    """A folder of growing files of JSON lines."""

    acknowledges = False
    overtaken = False
    made_anew = 0
    spoilt = False

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self._folder = folder
        self._files: dict[str, Path] = {}

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:
        """Return the partition, and know which file it is."""
        [self._files[partition]] = [path for path in self._folder.iterdir() if path.stat().st_ino == details["ino"]]
        return partition

    def there(self) -> dict[str, int]:
        """Return the end of the complete lines of each file that has some, by its path where it is not known yet."""
        names = {path: partition for partition, path in self._files.items()}
        return {names.get(path, str(path)): end for path in self._folder.iterdir() if (end := _complete(path)) > 0}

    def end(self, place: str) -> int:
        """Return the end of the complete lines of a file."""
        return _complete(self._files[place])

    def start(self, place: str) -> int:
        """Return 0."""
        return 0

    def told(self) -> Mapping[str, int]:
        """Nothing: files take no acknowledgements."""
        return {}

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a range, which has whole lines."""
        rows, at = list[dict[str, Any]](), lower
        for line in self._files[place].read_bytes()[lower:upper].splitlines(keepends=True):
            rows.append({**visit(json.loads(line)["n"]), "_partition": place, "_offset": at})
            at += len(line)
        return [pa.RecordBatch.from_pylist(rows, schema=self.schema)]

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:
        """Nothing."""
        return []

    def blurred(self, place: str, lower: int, upper: int) -> bool:
        """False."""
        return False


def _complete(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1
