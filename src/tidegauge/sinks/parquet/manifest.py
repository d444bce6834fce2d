"""The manifest of a Parquet table's commit: its epochs, its owner and its files; JSON, for people too.

With the rows comes the history of their epochs (`remap.history`): its digest, and its links, which are in a file
beside the manifest where they are many.

Invariant: a manifest is checked when it is read; what it names lies in its own folder.

>>> folder_name(42)
'from_epoch=000000000042'
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.sinks import DamagedManifest, ForeignTable, TableOfAnotherIncarnation
from tidegauge.sinks.protocol import OutputId, StagedFile

__all__ = ["LINKS", "MANIFEST", "Manifest", "folder_name"]

MANIFEST: Final = "_manifest.json"
LINKS: Final = "_links.jsonl"
"""The links of a commit that has many, a line each."""
_FORMAT: Final = 1


def folder_name(lower: int) -> str:
    """Return the name of the folder of the commit that begins at this epoch."""
    return f"from_epoch={lower:012d}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit: the epochs `[lower, upper)`. `schema` is the table's, and is in its first manifest alone.

    digest: of the history up to `upper`, "" where it was not known. links: of the epochs, those that were found in
    here, as JSON data: they are looked at only to recover a lost store.
    """

    output: OutputId
    lower: int
    upper: int
    write: str
    files: tuple[StagedFile, ...]
    schema: pa.Schema | None
    digest: str = ""
    links: tuple[Any, ...] = ()

    def encode(self, links: Sequence[str] = ()) -> bytes:
        """Return the manifest as JSON. The schema is there twice: for people, and as an Arrow IPC message.

        links: the links of the epochs that are to be in it, each as JSON.
        """
        data: dict[str, Any] = {
            "format": _FORMAT,
            "flow": self.output.flow,
            "output": self.output.output,
            "incarnation": self.output.incarnation,
            "lower": self.lower,
            "upper": self.upper,
            "rows": sum(file.rows for file in self.files),
            "write": self.write,
            "files": [file.encode() for file in self.files],
        }
        if self.digest:
            data["digest"] = self.digest
        if self.schema is not None:
            data["columns"] = [{"name": field.name, "type": str(field.type)} for field in self.schema]
            data["arrow_schema"] = base64.b64encode(self.schema.serialize().to_pybytes()).decode("ascii")
        text = json.dumps(data, indent=1)
        if links:  # a line each, as they are: indented by the standard library they would cost more than all the rest
            lines = ",\n".join(f"  {link}" for link in links)
            text = f'{text[:-2]},\n "links": [\n{lines}\n ]\n}}'
        return f"{text}\n".encode()

    @staticmethod
    def decode(text: bytes, *, path: str) -> Manifest:
        """Return the manifest that was read from `path`, or raise `DamagedManifest`."""
        try:
            data = json.loads(text)
            if data["format"] != _FORMAT:
                raise ValueError(f"its format is {data['format']}, this version knows {_FORMAT}")
            encoded = data.get("arrow_schema")
            found = Manifest(
                output=OutputId(str(data["flow"]), str(data["output"]), str(data["incarnation"])),
                lower=int(data["lower"]),
                upper=int(data["upper"]),
                write=str(data["write"]),
                files=tuple(StagedFile.decode(file) for file in data["files"]),
                schema=None if encoded is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded))),
                digest=str(data.get("digest", "")),
                links=tuple(data.get("links", [])),
            )
            found._check()
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, OSError) as error:
            raise DamagedManifest(path=path, detail=f"{type(error).__name__}: {error}") from error
        return found

    def check_owner(self, table: str, output: OutputId) -> None:
        """Raise `ForeignTable` or `TableOfAnotherIncarnation` for the commit of another output or another store."""
        if (self.output.flow, self.output.output) != (output.flow, output.output):
            raise ForeignTable(table=table, output=str(output), detail=f"it was written by {str(self.output)!r}")
        if self.output.incarnation != output.incarnation:
            raise TableOfAnotherIncarnation(table=table, output=str(output), incarnation=output.incarnation)

    def _check(self) -> None:
        if not 0 <= self.lower < self.upper:
            raise ValueError(f"[{self.lower}, {self.upper}) is not a span of epochs")
        folder = folder_name(self.lower)
        for file in self.files:
            parent, _, name = file.path.rpartition("/")
            if parent != folder or name in {"", ".", ".."} or "\\" in name or "\0" in name:
                raise ValueError(f"the file {file.path!r} is not in the folder {folder}")
