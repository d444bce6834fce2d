"""Mending a Parquet table: its folders are held against their manifests, and whole commits are replaced.

The folders of new commits are finished first, beside the table. Then, from the last to the first, the old ones leave
their place and the new one takes it. A crash between the two leaves a chain that ends early, with which the next run
goes on, or one that lacks a link, which is refused until it is mended once more. Of a table that was replaced the
newest edition is mended; folders of earlier ones are to hold no row.

Invariant: every commit in the table's chain is whole at every instant; no folder is taken away before its replacement
is durable.
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidegauge.errors.sinks import (
    BrokenChain,
    DamagedManifest,
    RowsTakenOut,
    TableBusy,
    TableSchemaChanged,
)
from tidegauge.evolution import Evolved, evolved, kinds
from tidegauge.remap.history import Link
from tidegauge.sinks.columns import differences, rows_schema
from tidegauge.sinks.commits import staged_status
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.location import path_inside, synchronise, writing
from tidegauge.sinks.mending import HistoryOf, Ranges, TableDamage, joined, within
from tidegauge.sinks.parquet.edition import below, finish, first_folders, hidden, newest
from tidegauge.sinks.parquet.manifest import (
    MANIFEST,
    Manifest,
    commits_in,
    folder_name,
    gathered,
    links_of,
    placed,
    remove_empty,
    slot_of,
    take_away,
    write_of,
)
from tidegauge.sinks.protocol import OutputId, StagedFile, job_mark

__all__ = ["ParquetMending"]


class ParquetMending:
    """A `Mending`: the chain of commits in `folder`, as the output `output` finds it."""

    def __init__(self, folder: str, output: OutputId, layout: FileLayout = AS_IT_COMES) -> None:
        self._layout: Final = layout
        self._folder: Final = folder
        self._output: Final = output
        self._all: Final = self._list()
        self._base: Final = self._newest()
        shown = folder_name(0, self._base) in self._all
        self._swap: Final = None if shown else hidden(folder, self._all)
        self._names: Final = self._of_the_newest()
        self._manifests: Final[dict[str, Manifest | None]] = {}
        self._spans: Final[dict[range, str]] = {}
        self._missing: Final[dict[str, str]] = {}
        self._foreign: Final[dict[str, str]] = {}
        self._walk()
        damaged = [span for span, name in self._spans.items() if self._is_damaged(name)]
        self._damage: Final = TableDamage(self._missing, self._foreign, joined(damaged))
        self._ranges: Final = list(self._spans)
        self._last: Final = next((found for found in reversed(self._manifests.values()) if found is not None), None)

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by its last commit."""
        return self._ranges[-1].stop if self._ranges else 0

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper, None where the last commit has none."""
        last = self._manifests.get(self._spans[self._ranges[-1]]) if self._ranges else None
        return (last.digest or None) if last is not None else None

    @property
    def schema(self) -> pa.Schema | None:
        """Its columns, as the manifests that can be read have them last; None if none does."""
        found = [one.schema for one in self._manifests.values() if one is not None and one.schema is not None]
        return found[-1] if found else None

    @property
    def damage(self) -> TableDamage:
        """Which folders and files are missing or cannot be read, and which files are of no commit."""
        return self._damage

    def links(self) -> list[Link]:
        """Return the links that the commits have. Raises `DamagedHistory`."""
        found = [(self._at(name), manifest) for name, manifest in self._manifests.items() if manifest is not None]
        return [link for folder, manifest in found for link in links_of(folder, manifest)]

    def whole(self, epochs: Ranges) -> Ranges:
        """Return the epochs of all commits that hold some of these."""
        starts = [span.start for span in self._ranges]
        first = [self._ranges[bisect_right(starts, one.start) - 1] for one in epochs]
        last = [self._ranges[bisect_right(starts, one.stop - 1) - 1] for one in epochs]
        return joined(range(one.start, other.stop) for one, other in zip(first, last, strict=True))

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. One that was committed is not where it was staged, and so is safe."""
        with writing(self._folder):
            for file in files:
                path_inside(self._folder, file.path).unlink(missing_ok=True)

    def replace(
        self,
        epochs: Ranges,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        write: str,
        told: HistoryOf,
    ) -> None:
        """Replace the commits of these epochs, one for each range, and remove the files of others.

        Raises `TableBusy` when a commit has come meanwhile, `TableSchemaChanged`, `StagedFileMissing`.
        """
        columns = self._layout.columns(rows_schema(schema))
        held = self._columns(columns)
        for file in files:
            staged_status(self._folder, file)
        with writing(self._folder), ExitStack() as made:
            folders: dict[range, Path] = {}
            for one in epochs:
                if one.start < (stop := min(one.stop, upper)):
                    mine = [file for file in files if within(range(file.first_epoch, file.last_epoch + 1), (one,))]
                    history = told(one.start, stop)
                    manifest = Manifest(
                        self._output,
                        one.start,
                        stop,
                        write_of(write, one.start),
                        tuple(placed(file, folder_name(one.start, self._base)) for file in mine),
                        columns if one.start == 0 else held if self._tells(one, held) else None,
                        history.digest,
                        place=self._base,
                        edition="" if self._last is None else self._last.edition,
                        partition=self._layout.names if one.start == 0 else (),
                    )
                    folders[one] = made.enter_context(gathered(self._folder, mine, manifest, history))
            if self._list() != self._all:
                raise TableBusy(table=self._folder, attempts=1)
            if self._swap is not None:
                finish(self._folder, self._swap, self._base)
            for one in reversed(epochs):
                self._exchange(one, folders.get(one), write)
            self._remove_foreign()
            synchronise(self._folder)
        remove_empty(self._folder, files)

    def _columns(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of the table, mended by these rows. Raises `TableSchemaChanged`.

        Which columns a commit has brought whose manifest cannot be read, the rows tell.
        """
        held = rows if self.schema is None else self.schema
        unknown = any(self._manifests.get(name) is None for name in self._spans.values())
        more = evolved(kinds(held), kinds(rows), "add") if unknown else Evolved(refused="all are known")
        if more.refused and (detail := differences(held, rows)):
            raise TableSchemaChanged(table=self._folder, output=str(self._output), detail=detail)
        return pa.schema([*held, *(rows.field(name) for name in more.added)])

    def _tells(self, epochs: range, held: pa.Schema) -> bool:
        """Whether a commit of these epochs may have brought columns that none before it has."""
        found = [self._manifests.get(name) for span, name in self._spans.items() if span.start in epochs]
        earlier = [self._manifests.get(name) for span, name in self._spans.items() if span.start < epochs.start]
        known = [one.schema for one in earlier if one is not None and one.schema is not None]
        bringing = any(one is None or one.schema is not None for one in found)
        return bringing and not (known and known[-1].equals(held))

    # -- what is there

    def _list(self) -> list[str]:
        """Return the names of the commits' folders that have something in them, sorted. Raises `ForeignTable`."""
        return [name for name in commits_in(self._folder, self._output) if any(Path(self._folder, name).iterdir())]

    def _newest(self) -> int:
        """Return the base of the newest edition, in sight or not."""
        found = newest(self._all)
        for name in self._all:
            with suppress(DamagedManifest):
                found = max(found, self._decoded(Path(self._folder, name), name).anew)
        return found

    def _of_the_newest(self) -> list[str]:
        """Return the names of the commits of the newest edition, in their order."""
        found = {name for name in self._all if slot_of(name)[1] >= self._base}
        found |= {folder_name(0, self._base)} if self._swap is not None else set()
        return sorted(found, key=slot_of)

    def _at(self, name: str) -> Path:
        """Return where a commit of the newest edition is."""
        there = Path(self._folder, name)
        if self._swap is None or slot_of(name) != (0, self._base):
            return there
        return next(filter(Path.is_dir, first_folders(self._folder, self._swap, self._base)), there)

    def _walk(self) -> None:
        """Take in the folders in order. Each commit is a span, and so is what lacks between two of them."""
        lowers = [slot_of(name)[0] for name in self._names]
        at = 0
        for name, lower, following in zip_longest(self._names, lowers, lowers[1:]):
            if lower < at:
                raise BrokenChain(table=self._folder, folder=name, reached=folder_name(at, self._base))
            if at < lower:
                gap = folder_name(at, self._base)
                self._missing[gap] = "the folder is gone"
                self._spans[range(at, lower)] = gap
            try:
                manifest = self._manifests[name] = self._read(name)
                at = manifest.upper
            except DamagedManifest:
                if following is None:  # up to which epoch it goes nobody knows
                    raise
                self._manifests[name], at = None, following
                self._missing[f"{name}/{MANIFEST}"] = "it cannot be read"
            if lower < at:
                self._spans[range(lower, at)] = name
            self._account(name)
        for name in self._all if self._swap is None else ():
            if slot_of(name)[1] < self._base:
                files = below(Path(self._folder, name))
                self._foreign.update((f"{name}/{file}", "of rows that were replaced") for file in files)

    def _read(self, name: str) -> Manifest:
        manifest = self._decoded(self._at(name), name)
        if manifest.removed:  # the folders before it no longer hold their epochs, so none of them can be put in again
            raise RowsTakenOut(table=self._folder, output=str(self._output), epoch=0)
        return manifest

    def _decoded(self, folder: Path, name: str) -> Manifest:
        path = folder / MANIFEST
        try:
            manifest = Manifest.decode(path.read_bytes(), path=str(path))
        except FileNotFoundError as error:
            raise DamagedManifest(path=str(path), detail="it is missing") from error
        if (manifest.lower, manifest.place) != slot_of(name):
            raise DamagedManifest(path=str(path), detail=f"it says that it begins at {manifest.lower}")
        manifest.check_owner(self._folder, self._output)
        return manifest

    def _account(self, name: str) -> None:
        """Hold the files of a folder against its manifest. Without one, files are ours that have such names."""
        manifest, folder = self._manifests[name], self._at(name)
        there = {f"{name}/{file}": _size(folder / file) for file in below(folder)}
        wanted = {} if manifest is None else {file.path: file.bytes for file in manifest.files}
        for path, size in wanted.items():
            if there.get(path) != size:
                self._missing[path] = "it is gone, or is not as it was"
        ours = f"part-{job_mark(self._output.incarnation)}"
        for path in sorted(there.keys() - wanted.keys()):
            if manifest is not None or not path.rpartition("/")[2].startswith(ours):
                self._foreign[path] = "of no commit"

    def _is_damaged(self, name: str) -> bool:
        return name in self._missing or any(path.startswith(f"{name}/") for path in self._missing)

    # -- the replacement

    def _exchange(self, epochs: range, folder: Path | None, write: str) -> None:
        """Take the commits of the epochs out of their places, the last first, and put the new one in."""
        for name in reversed(self._names):
            if slot_of(name)[0] in epochs:
                take_away(Path(self._folder, name), write_of(write, -1 - self._names.index(name)))
        if folder is not None:
            folder.rename(Path(self._folder, folder_name(epochs.start, self._base)))

    def _remove_foreign(self) -> None:
        for path in map(self._inside, self._foreign):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _inside(self, path: str) -> Path:
        return path_inside(self._folder, path)


def _size(path: Path) -> int | None:
    """Return the size of a file, None for a folder."""
    return path.stat().st_size if path.is_file() else None
