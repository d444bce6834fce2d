"""A commit of a Parquet table: its manifest, and how its folder is made before it is renamed into its place.

The manifest has the epochs, the owner and the files; JSON, for people too. With the rows comes the history of their
epochs (`remap.history`): its digest, and its links, which are in a file beside the manifest where they are many.

Invariant: a manifest is checked when it is read; what it names lies in its own folder. A folder that stands in its
place is whole and durable, with its manifest; one that is to go leaves its place in one rename, before anything of
it is removed.

>>> folder_name(42)
'from_epoch=000000000042'
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.disk import write_durably
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.history import DamagedHistory
from tidegauge.errors.sinks import DamagedManifest, ForeignTable, TableOfAnotherIncarnation
from tidegauge.remap.history import History, Link
from tidegauge.sinks.attempt import STAGED, folders_of
from tidegauge.sinks.commits import in_line
from tidegauge.sinks.layout.values import folders
from tidegauge.sinks.location import AWAY, make_folder, path_inside, synchronise
from tidegauge.sinks.protocol import OutputId, StagedFile

__all__ = [
    "LINKS",
    "MANIFEST",
    "REMOVED",
    "ROWS",
    "STAGED",
    "Manifest",
    "commits_in",
    "first_of",
    "folder_name",
    "gathered",
    "is_commit",
    "links_of",
    "only_commits",
    "placed",
    "remove_empty",
    "slot_of",
    "take_away",
    "ungathered",
    "write_of",
]

MANIFEST: Final = "_manifest.json"
LINKS: Final = "_links.jsonl"
"""The links of a commit that has many, a line each."""
_FORMAT: Final = 1
_FORMAT_TAKING: Final = 2
"""Of manifests that take files out, or add no epochs: a version that knows nothing of them must not read over it."""
_FORMAT_EDITIONS: Final = 3
"""Of manifests of another edition than the first (`parquet.edition`), for the same reason."""
_FORMAT_COLUMNS: Final = 4
"""Of manifests that give the table other columns than it had before, for the same reason."""
_FORMAT_PARTED: Final = 5
"""Of manifests whose files are in the folders of partitions, or will be in later ones, for the same reason."""
ROWS: Final = "_rows"
"""The folder, in that of a swap, with the commit that is not in sight yet."""


def folder_name(lower: int, place: int = 0) -> str:
    """Return the name of the folder of the commit that begins at this epoch.

    place: how many commits before it began at this epoch, and added none. The name gets longer by it, and the number
    in it stays, which readers take for the value of a partition column.
    """
    return f"from_epoch={'0' * place}{lower:012d}"


def slot_of(name: str) -> tuple[int, int]:
    """Return the epoch and the place that a commit's folder is named by.

    >>> slot_of("from_epoch=000000000042"), slot_of(folder_name(42, 3))
    ((42, 0), (42, 3))
    """
    digits = name.removeprefix("from_epoch=")
    return int(digits), len(digits) - len(f"{int(digits):012d}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit: the epochs `[lower, upper)`.

    schema: the table's columns, in its first manifest and in those that bring others; None elsewhere.

    digest: of the history up to `upper`, "" where it was not known. links: of the epochs, those that were found in
    here, as JSON data: they are looked at only to recover a lost store. removed: paths of files of earlier commits
    that this one takes out. place: see `folder_name`. edition: that of the rows from here on, "" for the first one.
    anew: the place of the commit, of [0, ...), whose rows change places here with all rows of before; 0 for none.
    partition: the columns that the table is parted by, beside the schema.
    """

    output: OutputId
    lower: int
    upper: int
    write: str
    files: tuple[StagedFile, ...]
    schema: pa.Schema | None
    digest: str = ""
    links: tuple[Any, ...] = ()
    removed: tuple[str, ...] = ()
    place: int = 0
    edition: str = ""
    anew: int = 0
    partition: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return folder_name(self.lower, self.place)

    @property
    def marks(self) -> bool:
        """Whether it only tells the edition of the rows, and neither adds nor takes out a file."""
        return self.lower == self.upper and not self.removed

    @property
    def changes(self) -> bool:
        """Whether it takes out rows that the table held before, and does not put the same ones in again."""
        return bool(self.removed) and self.lower < self.upper

    def encode(self, links: Sequence[str] = (), *, first: bytes = b"") -> bytes:
        """Return the manifest as JSON. The schema is there twice: for people, and as an Arrow IPC message.

        links: the links of the epochs that are to be in it, each as JSON. first: of a swap in an object store, the
        manifest of the commit that it leads to (`first_of`).
        """
        data: dict[str, Any] = {
            "format": self._format,
            "flow": self.output.flow,
            "output": self.output.output,
            "incarnation": self.output.incarnation,
            "lower": self.lower,
            "upper": self.upper,
            "rows": sum(file.rows for file in self.files),
            "write": self.write,
            "files": [file.encode() for file in self.files],
        }
        if self._takes or self.edition:
            data |= {"removed": list(self.removed), "place": self.place}
        if self.edition:
            data |= {"edition": self.edition, "anew": self.anew}
        if self.digest:
            data["digest"] = self.digest
        if self.partition:
            data["partition"] = list(self.partition)
        if self.schema is not None:
            data["columns"] = [{"name": field.name, "type": str(field.type)} for field in self.schema]
            data["arrow_schema"] = base64.b64encode(self.schema.serialize().to_pybytes()).decode("ascii")
        if first:
            data["first"] = json.loads(first)
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
            if data["format"] not in range(_FORMAT, _FORMAT_PARTED + 1):
                raise ValueError(f"its format is {data['format']}, this version knows those up to {_FORMAT_PARTED}")
            encoded = data.get("arrow_schema")
            brings = encoded is not None and int(data["lower"]) > 0
            if data["format"] != _FORMAT_PARTED and (data["format"] == _FORMAT_COLUMNS) != brings:
                raise ValueError(
                    f"its format is {data['format']}, and it begins at {data['lower']} with columns or not"
                )
            found = Manifest(
                output=OutputId(str(data["flow"]), str(data["output"]), str(data["incarnation"])),
                lower=int(data["lower"]),
                upper=int(data["upper"]),
                write=str(data["write"]),
                files=tuple(StagedFile.decode(file) for file in data["files"]),
                schema=None if encoded is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded))),
                digest=str(data.get("digest", "")),
                links=tuple(data.get("links", [])),
                removed=tuple(map(str, data.get("removed", []))),
                place=int(data.get("place", 0)),
                edition=str(data.get("edition", "")),
                anew=int(data.get("anew", 0)),
                partition=tuple(map(str, data.get("partition", []))),
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

    @property
    def _format(self) -> int:
        if self.partition or any(file.partition for file in self.files):
            return _FORMAT_PARTED
        if self.schema is not None and self.lower:
            return _FORMAT_COLUMNS
        return _FORMAT_EDITIONS if self.edition else _FORMAT_TAKING if self._takes else _FORMAT

    @property
    def _takes(self) -> bool:
        return bool(self.removed) or self.place > 0

    def _check(self) -> None:
        if not (0 <= self.lower < self.upper or ((self.removed or self.edition) and 0 < self.lower == self.upper)):
            raise ValueError(f"[{self.lower}, {self.upper}) is not a span of epochs")
        if self.anew and not (self.marks and self.place < self.anew):
            raise ValueError(f"other rows cannot begin at the place {self.anew} here")
        if self.marks and self.files:
            raise ValueError(f"it has {len(self.files)} files and no epochs")
        folder = self.folder
        for file in self.files:
            name = file.path.rpartition("/")[2]
            if placed(file, folder) != file or name in {"", ".", ".."} or "\\" in name or "\0" in name:
                raise ValueError(f"the file {file.path!r} is not in the folder {folder}")


def first_of(swap: bytes) -> bytes | None:
    """Return the manifest that a swap in an object store carries, None where it carries none."""
    found = json.loads(swap).get("first")
    return None if found is None else json.dumps(found).encode()


REMOVED: Final = "_removed"
"""Where files go that a commit has taken out: no reader of the folder looks there, and reads of earlier epochs do."""


@contextmanager
def gathered(
    table: str, files: Sequence[StagedFile], manifest: Manifest, history: History, *, swap: Manifest | None = None
) -> Iterator[Path]:
    """Bring the files of a commit into one durable folder; put them back where they were if the body fails.

    history: that of its epochs. Its links are in the manifest, or beside it when they are large. swap: that of the
    folder, if the commit is to be out of sight in it.
    """
    folder = path_inside(table, f"{STAGED}/commit-{manifest.write}")
    if folder.parent != Path(table, STAGED):
        raise InvalidArgument(parameter="write", value=manifest.write, expected="a name without '/'")
    make_folder(folder.parent)
    folder.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        place = folder
        if swap is not None:
            place = folder / ROWS
            place.mkdir()
            write_durably(folder / MANIFEST, swap.encode())
        for file in files:
            source, there = path_inside(table, file.path), place / _within(file)
            moved.append((source, there))
            there.parent.mkdir(parents=True, exist_ok=True)
            source.rename(there)
        lines = history.lines if in_line(history) else ()
        if not lines and history.lines:
            write_durably(place / LINKS, history.encode().encode())
        write_durably(place / MANIFEST, manifest.encode(lines))
        for inner in sorted({path for _, there in moved for path in there.relative_to(place).parents}, reverse=True):
            synchronise(place / inner)
        synchronise(place)
        if swap is not None:
            synchronise(folder)
        yield folder
    except BaseException:
        for source, there in moved:
            with suppress(FileNotFoundError):
                there.rename(source)
        shutil.rmtree(folder, ignore_errors=True)
        raise


def ungathered(table: str, files: Sequence[StagedFile], mark: str) -> None:
    """Put staged files back that a commit of the flow `mark` had gathered, and never made. Only with the lease.

    A commit is one rename of its folder, and so is the first step here: the file system lets one of them win.
    """
    away = {Path(file.path).name: file.path for file in files if not path_inside(table, file.path).exists()}
    prefixes = f"commit-{mark}", f"{AWAY}commit-{mark}"
    staged = Path(table, STAGED)
    left = (
        [folder for folder in staged.iterdir() if folder.name.startswith(prefixes)]
        if away and staged.is_dir()
        else []
    )
    for folder in sorted(left, key=lambda folder: not folder.name.startswith(AWAY)):  # these make way for the others
        taken = folder if folder.name.startswith(AWAY) else folder.with_name(f"{AWAY}{folder.name}")
        with suppress(FileNotFoundError):
            folder.rename(taken)
            for found in [path for path in taken.rglob("*") if path.name in away]:
                place = path_inside(table, away.pop(found.name))
                make_folder(place.parent)
                found.rename(place)
                synchronise(place.parent)
        shutil.rmtree(taken, ignore_errors=True)


def take_away(folder: Path, write: str) -> None:
    """Take a folder out of its place; what the file system does not let go is swept by a later run."""
    away = folder.parent / STAGED / f"removed-{write}"
    make_folder(away.parent)
    folder.rename(away)
    shutil.rmtree(away, ignore_errors=True)


def write_of(write: str, lower: int) -> str:
    """Return the name of a part of an attempt, which begins with the mark of its flow as that does.

    >>> write_of("a" * 32, 7) == write_of("a" * 32, 7) != write_of("a" * 32, 8), len(write_of("a" * 32, 7))
    (True, 32)
    """
    return write[:16] + blake2b(f"{write}-{lower}".encode("ascii"), digest_size=8).hexdigest()


def links_of(folder: Path, manifest: Manifest) -> list[Link]:
    """Return the links that a commit has, whose folder this is. Raises `DamagedHistory`."""
    try:
        found = [Link.decode(link) for link in manifest.links]
        with suppress(FileNotFoundError):
            found += History.decode((folder / LINKS).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedHistory(table=str(folder.parent), path=str(folder), detail=str(error)) from error
    return found


def placed(file: StagedFile, folder: str) -> StagedFile:
    """Return a staged file under its name in the commit with this folder."""
    return replace(file, path=f"{folder}/{_within(file)}")


def _within(file: StagedFile) -> str:
    """Return where a file is in the folder of its commit: below the folders of its partition."""
    name = file.path.rpartition("/")[2]
    return f"{folders(file.partition, letters=True)}/{name}" if file.partition else name


def remove_empty(table: str, files: Sequence[StagedFile]) -> None:
    """Remove the jobs' folders that hold nothing any more."""
    for folder in folders_of(files):
        with suppress(OSError):
            path_inside(table, folder).rmdir()


def commits_in(table: str, output: OutputId) -> list[str]:
    """Return the names of the commits' folders, sorted. Raises `ForeignTable` for a table that holds other things."""
    try:
        names = sorted(name for name in os.listdir(table) if not name.startswith(("_", ".")))
    except FileNotFoundError:
        return []
    return only_commits(names, table, output)


def only_commits(names: Sequence[str], table: str, output: OutputId) -> list[str]:
    """Return the names in a table, which are those of commits' folders. Raises `ForeignTable` for others."""
    if foreign := [name for name in names if not is_commit(name)]:
        detail = f"it holds {', '.join(foreign[:3])}" + (" and more" if len(foreign) > 3 else "")
        raise ForeignTable(table=table, output=str(output), detail=detail)
    return list(names)


def is_commit(name: str) -> bool:
    """Whether it is the name of a commit's folder."""
    digits = name.removeprefix("from_epoch=")
    return digits.isdecimal() and name.startswith("from_epoch=") and len(digits) >= len(f"{int(digits):012d}")
