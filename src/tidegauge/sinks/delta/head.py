"""What a commit to a Delta table must know of it, followed entry by entry, so that it costs the same at any age.

A snapshot is every file of a table, and costs what they are. To append, none of them has to be known: only which
version is the newest, under which protocol and metadata, and how far each application is.

Invariant: `follow` over the entries of a log from its beginning, or from any checkpoint on, gives the same head; an
entry is taken in once, in the order of the versions, and none is left out.

>>> head = follow(NOTHING, [{"protocol": {"minWriterVersion": 2}}, {"metaData": {"schemaString": "{}"}}])
>>> head = follow(head, [{"txn": {"appId": "shop:orders", "version": 7}}, {"add": {"path": "a.parquet"}}])
>>> head.version, head.transactions
(1, {'shop:orders': 7})
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidegauge.errors.sinks import TableUnavailable
from tidegauge.lazy import library
from tidegauge.objects.address import is_address
from tidegauge.objects.client import told
from tidegauge.objects.reading import readable
from tidegauge.sinks.location import TablePath, names_in

__all__ = [
    "NOTHING",
    "DeltaHead",
    "actions_of",
    "checkpoint_before",
    "entry",
    "follow",
    "hinted",
    "is_entry",
    "lines_of",
    "log_read",
    "newer",
    "newest",
    "unsupported",
]

pq: Final = library("pyarrow.parquet")

Action: TypeAlias = Mapping[str, Any]

_ENTRY: Final = re.compile(r"(\d{20})\.json", re.ASCII)
_CHECKPOINT: Final = re.compile(
    r"(?P<version>\d{20})\.checkpoint\.((?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|parquet|[0-9a-f-]{36}\.(parquet|json))",
    re.ASCII,
)
"""In one file, in several, or with a name of its own (and its files elsewhere, which do not matter here)."""
_KNOWN: Final = frozenset(
    {
        "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "domainMetadata",
        "generatedColumns", "identityColumns", "invariants", "timestampNtz", "typeWidening", "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)  # fmt: skip
"""Writer features under which files may be appended, as long as a table only may use them; `unsupported` says when
it does."""
_LISTS_FEATURES: Final = 7
_OF_COLUMNS: Final = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generated columns",
    "delta.identity.start": "identity columns",
}


@dataclass(frozen=True, slots=True)
class DeltaHead:
    """A table at a version. The transactions are of all applications."""

    version: int = -1
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.get("configuration") or {}

    @property
    def partitioned(self) -> list[str]:
        """The partition columns of the table."""
        return list(self.metadata.get("partitionColumns") or ())

    @property
    def schema(self) -> str:
        """The table's columns in Delta's JSON."""
        return str(self.metadata["schemaString"])


NOTHING: Final = DeltaHead()


def follow(head: DeltaHead, actions: Iterable[Action]) -> DeltaHead:
    """Return the head after the next version's entry."""
    return replace(_with(head, actions), version=head.version + 1)


def _with(head: DeltaHead, actions: Iterable[Action]) -> DeltaHead:
    protocol, metadata, transactions = head.protocol, head.metadata, dict(head.transactions)
    for action in actions:
        match action:
            case {"txn": {"appId": str() as owner, "version": int() as version}}:
                transactions[owner] = version
            case {"protocol": {} as protocol}:
                continue
            case {"metaData": {} as metadata}:
                continue
            case _:
                continue
    return replace(head, protocol=protocol, metadata=metadata, transactions=transactions)


def unsupported(head: DeltaHead) -> str | None:
    """Return what a table uses that an append of files cannot honour, None when there is nothing.

    >>> unsupported(DeltaHead(protocol={"minWriterVersion": 7, "writerFeatures": ["rowTracking"]}))
    'the writer feature rowTracking'
    """
    version = head.protocol.get("minWriterVersion", 0)
    if version > _LISTS_FEATURES:
        return f"version {version} of the protocol for writers"
    if strange := sorted(set(head.protocol.get("writerFeatures") or ()) - _KNOWN):
        return f"the writer feature {strange[0]}"
    if head.configuration.get("delta.columnMapping.mode", "none") != "none":
        return "column mapping"
    for name in head.configuration:
        if name.startswith("delta.constraints."):
            return f"the constraint {name.rpartition('.')[2]}"
    columns = head.metadata.get("schemaString", "")
    return next((said for key, said in _OF_COLUMNS.items() if re.search(rf'"{re.escape(key)}"\s*:', columns)), None)


# -- the log's files


@contextmanager
def log_read(folder: str) -> Iterator[None]:
    """Raise `TableUnavailable` for what keeps the log of a table from being read, or what its store refuses."""
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        if is_address(folder) and (refused := told(folder, str(error))) is not None:
            raise refused from None
        raise TableUnavailable(table=folder, detail=str(error)) from error


def entry(log: TablePath, version: int) -> TablePath:
    """Return where the entry of a version is."""
    return log / f"{version:020d}.json"


def is_entry(name: str) -> bool:
    """Whether a file of a log is an entry, by its name."""
    return _ENTRY.fullmatch(name) is not None


def lines_of(path: TablePath) -> list[str]:
    """Return the lines of an entry; within one, texts may have what `str.splitlines` takes for the end of a line."""
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]


def actions_of(path: TablePath) -> list[Action]:
    """Return the actions of an entry. Raises `OSError`, and `ValueError` for anything else.

    Files have the paths that they have in the table's folder: the log has these as parts of an address.
    """
    try:
        found = [json.loads(line) for line in lines_of(path)]
    except RecursionError as error:
        raise ValueError(f"{path.name} is nested too deeply") from error
    for action in found:
        for file in (action.get("add"), action.get("remove")) if isinstance(action, dict) else ():
            if isinstance(file, dict) and "%" in str(file.get("path", "")):
                file["path"] = unquote(str(file["path"]))
    return found


def newer(log: TablePath, head: DeltaHead) -> Iterator[tuple[DeltaHead, list[Action]]]:
    """Yield the head after each entry that came after this one, with what it says. Raises `OSError`, `ValueError`."""
    with suppress(FileNotFoundError):
        while True:
            actions = actions_of(entry(log, head.version + 1))
            head = follow(head, actions)
            yield head, actions


def newest(log: TablePath) -> DeltaHead | None:
    """Return the head of a log, None where there is no table.

    Raises `OSError`; `ValueError` where entries are missing or cannot be read.
    """
    try:
        names = names_in(log)
    except FileNotFoundError:
        return None
    versions = sorted(int(found[1]) for name in names if (found := _ENTRY.fullmatch(name)))
    checkpoint, parts = checkpoint_before(names)
    if not versions and not parts:
        return None
    head = replace(_with(NOTHING, _said(log, parts)), version=checkpoint)
    for later, _ in newer(log, head):
        head = later
    if versions and head.version < versions[-1]:
        raise ValueError(f"{entry(log, head.version + 1).name} is not there, and later entries are")
    return head


def hinted(log: TablePath) -> int:
    """Return the version of the last checkpoint, as the log's own hint has it; -1 where it has none."""
    with suppress(OSError, ValueError, RecursionError):
        match json.loads((log / "_last_checkpoint").read_text(encoding="utf-8")):
            case {"version": int(version)}:
                return version
            case _:
                return -1
    return -1


def checkpoint_before(names: Iterable[str], version: int | None = None) -> tuple[int, list[str]]:
    """Return the version of the last checkpoint that is there whole, and its files; -1 and none without one.

    version: no checkpoint of a later one counts.
    """
    found: dict[int, list[str]] = {}
    for name in names:
        if (match := _CHECKPOINT.fullmatch(name)) and (version is None or int(match["version"]) <= version):
            alone = found.setdefault(int(match["version"]), [])
            if match["part"] is None:
                alone[:] = [name]
            elif not any(_parts(other) == 1 for other in alone):
                alone.append(name)
    whole = [version for version, files in found.items() if len(files) == _parts(files[0])]
    return (max(whole), found[max(whole)]) if whole else (-1, [])


def _parts(name: str) -> int:
    match = _CHECKPOINT.fullmatch(name)
    return int(match["parts"] or 1) if match else 1


def _said(log: TablePath, files: Iterable[str]) -> Iterator[Action]:
    """Yield what the files of a checkpoint say of anything but files, which are in other columns."""
    for name in files:
        if name.endswith(".json"):
            yield from actions_of(log / name)
            continue
        try:
            rows = pq.read_table(readable(log / name), columns=["txn", "protocol", "metaData"])
        except pa.ArrowException as error:
            raise ValueError(f"{name} cannot be read: {error}") from error
        for column in rows.schema.names:
            for value in rows.column(column).drop_null().to_pylist(maps_as_pydicts="lossy"):
                yield {column: {key: found for key, found in value.items() if found is not None}}
