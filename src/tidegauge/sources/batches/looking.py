"""How far a query is: which of its batches follow those that are bound.

Invariant: a batch is taken only where it follows the one before it, by its id, by the query's and by the digest; so
all that is bound is one chain, from the first batch that the query has written here.

>>> import tempfile
>>> from pathlib import Path
>>> from tidegauge.sources.batches.writing import publish
>>> with tempfile.TemporaryDirectory() as root:
...     for batch in (0, 1, 2):
...         publish(Path(root, "orders"), "7d1f", batch, [])
...     query = Query.of(Path(root, "orders"), None, 0)
...     query.end, query.taken(), query.taken(), query.upper, query.more
(3, 0, 0, 2, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from tidegauge.errors.batches import BatchesMissing, BatchesReplaced
from tidegauge.remap.binding import Detail
from tidegauge.sources.batches.manifest import BatchManifest, LoadNote, batches_in, read_manifest
from tidegauge.sources.staging import StagingPath

__all__ = ["BatchChain", "Query"]


@dataclass(frozen=True, slots=True)
class BatchChain:
    """The batches up to one of them: the Spark query, its first batch, and the digest of the last manifest.

    loaded: what a load has loaded. Its one batch is all of it.
    """

    query_id: str
    first: int
    digest: str
    loaded: LoadNote | None = None

    @staticmethod
    def of(detail: Detail) -> BatchChain:
        """Return the one that was bound."""
        loaded = None
        if "inputs" in detail:
            at = str(detail.get("at", ""))
            loaded = LoadNote(str(detail["path"]), int(detail["inputs"]), int(detail["bytes"]), at)
        return BatchChain(str(detail["query"]), int(detail["first"]), str(detail["digest"]), loaded)

    @staticmethod
    def to(manifest: BatchManifest) -> BatchChain:
        """Return the one that a batch ends."""
        return BatchChain(manifest.query_id, manifest.first, manifest.digest, manifest.loaded)

    @property
    def detail(self) -> Detail:
        """Return the facts that are bound."""
        loaded = {} if self.loaded is None else self.loaded.said()
        return {"query": self.query_id, "first": self.first, "digest": self.digest, **loaded}

    def check(self, manifest: BatchManifest, place: str, *, digest: str | None = None) -> None:
        """Raise `BatchesReplaced` for a batch of another query, or one that does not follow this digest."""
        for what, known, found in (
            ("query", self.query_id, manifest.query_id),
            ("first batch", self.first, manifest.first),
            ("predecessor", digest, manifest.before if digest is not None else None),
        ):
            if known != found:
                raise BatchesReplaced(batch=manifest.batch, place=place, what=what, known=known, found=found)

    def check_last(self, manifest: BatchManifest, place: str) -> None:
        """Raise `BatchesReplaced` unless this is the batch that it ends with."""
        self.check(manifest, place)
        if manifest.digest != self.digest:
            raise BatchesReplaced(
                batch=manifest.batch, place=place, what="digest", known=self.digest, found=manifest.digest
            )


@dataclass(slots=True)
class Query:
    """A query at one look. chain: of all before `upper`, None before the first. end: where its batches end."""

    folder: StagingPath
    chain: BatchChain | None
    upper: int
    end: int

    @staticmethod
    def of(folder: StagingPath, known: BatchChain | None, upper: int) -> Query:
        """Look at the batches beyond `upper`. Raises `BatchesMissing`, `BatchesReplaced`, `BatchDamaged`."""
        if known is not None and known.loaded is not None:
            return Query(folder, known, upper, upper)  # also where the same was staged again, after it was removed
        there = batches_in(folder)
        if known is None:
            if not there:
                return Query(folder, None, upper, upper)
            upper = read_manifest(folder, there[0]).first
        elif upper - 1 in there:
            known.check_last(read_manifest(folder, upper - 1), str(folder))
        ahead = [batch for batch in there if batch >= upper]
        end = upper + _unbroken(ahead, upper)
        if ahead and end <= ahead[-1]:  # a listing beside a writer may lack what came first; another one has it
            again = [batch for batch in batches_in(folder) if batch >= upper]
            end = upper + _unbroken(again, upper)
            if end <= ahead[-1]:
                raise BatchesMissing(batch=min(n for n in ahead if n > end), missing=end, place=str(folder))
        return Query(folder, known, upper, end)

    @property
    def more(self) -> bool:
        """Whether it has batches beyond `upper`."""
        return self.upper < self.end

    def taken(self) -> int:
        """Take the next batch, and return how many rows it has. Raises `BatchesReplaced` where it does not follow."""
        manifest = read_manifest(self.folder, self.upper)
        chain = BatchChain(manifest.query_id, self.upper, "") if self.chain is None else self.chain
        chain.check(manifest, str(self.folder), digest=chain.digest)
        self.chain = BatchChain.to(manifest)
        self.upper += 1
        return manifest.rows


def _unbroken(batches: Sequence[int], start: int) -> int:
    """Return how many follow each other from `start` on."""
    numbers: Iterable[tuple[int, int]] = zip(batches, count(start), strict=False)
    return next((at for at, (found, due) in enumerate(numbers) if found != due), len(batches))
