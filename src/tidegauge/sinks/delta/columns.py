"""The columns of a Delta table, as an entry of its log gives it others.

Invariant: a column that the table has keeps its place, and all that its log says of it; new ones come last, and may
be null; so do new fields within. The protocol gets what they need and loses nothing.

>>> text = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"note":"x"}}]}'
>>> head = DeltaHead(metadata={"id": "1", "schemaString": text}, protocol={"minWriterVersion": 2})
>>> [said] = with_columns(head, pa.schema([("id", pa.int64()), ("at", pa.date32())]))
>>> fields = json.loads(said["metaData"]["schemaString"])["fields"]
>>> said["metaData"]["id"], [(one["name"], one["metadata"]) for one in fields]
('1', [('id', {'note': 'x'}), ('at', {})])
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import Schema

from tidegauge.sinks.delta.head import Action, DeltaHead

__all__ = ["NARROW", "allows_vectors", "described_anew", "with_columns", "with_vectors"]

NARROW: Final = "Delta has a feature for wider types (typeWidening), which many of its readers lack"
"""Why no column of a table gets a wider type."""
_VECTORS: Final = "delta.enableDeletionVectors"
_MAPS_COLUMNS: Final = 2
_LISTS_READERS: Final = 3
_LISTS_WRITERS: Final = 7
_LEGACY: Final[Mapping[int, tuple[str, ...]]] = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""What a table may use by the version of its protocol for writers, besides what the versions before have."""


def with_columns(head: DeltaHead, columns: pa.Schema) -> list[Action]:
    """Return the actions that give a table what it lacks of these columns and of fields within; none for none."""
    known = json.loads(head.schema)
    fields = _with_fields(known["fields"], json.loads(Schema.from_arrow(columns).to_json())["fields"])
    if fields == known["fields"]:
        return []
    return described_anew(head, json.dumps({**known, "fields": fields}, separators=(",", ":")))


def _with_fields(known: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """Return fields in Delta's JSON, with those that others have besides, also within, last."""
    others = {field["name"]: field for field in wanted}
    kept = [
        {**field, "type": _with_fields_within(field["type"], others.pop(field["name"])["type"])}
        if field["name"] in others
        else field
        for field in known
    ]
    return [*kept, *others.values()]


def _with_fields_within(known: Any, wanted: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(wanted, dict):
        return known
    if known["type"] == "struct":
        return {**known, "fields": _with_fields(known["fields"], wanted["fields"])}
    inner = "elementType" if known["type"] == "array" else "valueType"
    return {**known, inner: _with_fields_within(known[inner], wanted[inner])}


def described_anew(head: DeltaHead, schema: str, *, partition: Sequence[str] | None = None) -> list[Action]:
    """Return the actions that give a table other columns, in Delta's JSON, and the protocol that these need.

    partition: the columns that it is parted by from now on, None for those that it has.
    """
    parted = {} if partition is None else {"partitionColumns": list(partition)}
    found: list[Action] = [{"metaData": {**head.metadata, "schemaString": schema, **parted}}]
    return [*_using(head, "timestampNtz"), *found] if '"timestamp_ntz"' in schema else found


def allows_vectors(head: DeltaHead) -> bool:
    """Whether rows of a table's files may be marked deleted: by its protocol and its properties."""
    asked = head.configuration.get(_VECTORS, "false").lower() == "true"
    return asked and "deletionVectors" in (head.protocol.get("writerFeatures") or ())


def with_vectors(head: DeltaHead) -> list[Action]:
    """Return the actions that let rows of a table's files be marked deleted; none if they may be already.

    >>> [protocol, said] = with_vectors(DeltaHead(protocol={"minWriterVersion": 2}))
    >>> protocol["protocol"]["readerFeatures"], protocol["protocol"]["writerFeatures"]
    (['deletionVectors'], ['appendOnly', 'deletionVectors', 'invariants'])
    >>> said["metaData"]["configuration"]
    {'delta.enableDeletionVectors': 'true'}
    """
    if allows_vectors(head):
        return []
    asked = {"metaData": {**head.metadata, "configuration": {**head.configuration, _VECTORS: "true"}}}
    return [*_using(head, "deletionVectors"), asked]


def _using(head: DeltaHead, feature: str) -> list[Action]:
    """Return the action that adds a feature of readers and writers to a table's protocol; none if it has it."""
    protocol = head.protocol
    if feature in (protocol.get("writerFeatures") or ()):
        return []
    reading_by, writing_by = (int(protocol.get(f"min{one}Version", 1)) for one in ("Reader", "Writer"))
    legacy = {name for version, names in _LEGACY.items() if version <= writing_by for name in names}
    writers = {*(protocol.get("writerFeatures") or ()), *(legacy if writing_by < _LISTS_WRITERS else ())}
    readers = {*(protocol.get("readerFeatures") or ())}
    if reading_by == _MAPS_COLUMNS:
        readers.add("columnMapping")
    anew = {
        "minReaderVersion": _LISTS_READERS,
        "minWriterVersion": _LISTS_WRITERS,
        "readerFeatures": sorted({*readers, feature}),
        "writerFeatures": sorted({*writers, feature}),
    }
    return [{"protocol": anew}]
