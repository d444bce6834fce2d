"""What other programs write into the log of a Delta table, without these programs."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

__all__ = ["alter", "append_to_log", "delete_first_row"]


def append_to_log(path: str, actions: list[dict[str, Any]]) -> None:
    """Write the next entry."""
    version = DeltaTable(path).version() + 1
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    Path(path, "_delta_log", f"{version:020d}.json").write_text(lines)


def alter(path: str, configuration: dict[str, str], features: list[str], partitioned: Any = ()) -> None:
    """Switch a feature on as another program would, by an entry of the log."""
    first = Path(path, "_delta_log", f"{0:020d}.json").read_text().splitlines()
    [metadata] = [json.loads(line)["metaData"] for line in first if "metaData" in json.loads(line)]
    metadata |= {"configuration": configuration, "partitionColumns": list(partitioned)}
    versions = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    if "columnMapping" in features:
        schema = json.loads(metadata["schemaString"])
        for number, field in enumerate(schema["fields"], start=1):
            field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        metadata["schemaString"] = json.dumps(schema)
        metadata["configuration"] = configuration | {"delta.columnMapping.maxColumnId": str(len(schema["fields"]))}
    append_to_log(path, [{"protocol": versions}, {"metaData": metadata}])


def delete_first_row(path: str, file: Any) -> None:
    """Put an inline deletion vector of row 0 on a file: a Roaring bitmap, written as the Delta protocol says."""
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 0)  # one array container with the value 0
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap  # one 32-bit bitmap, for the high word 0
    padded = data + b"\0" * (-len(data) % 4)
    z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    b85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    encoded = base64.b85encode(padded).decode().translate(str.maketrans(b85, z85))
    vector = {"storageType": "i", "pathOrInlineDv": encoded, "sizeInBytes": len(data), "cardinality": 1}
    base = {"path": file.path, "partitionValues": {}, "size": file.bytes, "dataChange": True}
    stats = json.dumps({"numRecords": file.rows, "minValues": {"_epoch": 0}, "maxValues": {"_epoch": 2}})
    add = base | {"modificationTime": 0, "stats": stats, "deletionVector": vector}
    told = {"commitInfo": {"operation": "DELETE"}}
    append_to_log(path, [told, {"remove": base | {"deletionTimestamp": 0}}, {"add": add}])
