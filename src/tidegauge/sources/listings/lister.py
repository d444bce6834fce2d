"""What finds out which files are new: a listing, page by page, held against those that are known.

It is what a `Poller` asks. A poll is as many new files as an epoch takes; while a listing has more, it goes on
where the last poll ended. All that is known of files is learnt from the log: a driver that dies, or
that loses a race, lists again and finds the same files known.

In order (`ordered`), files are read in the order of their paths, and nothing is known but the last path. When
there is nothing to do, files that came `late` are looked for now and then.

Invariant: of a file that was listed to its end once, each version that counts is in the log once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors.listings import ListedFileChanged
from tidegauge.errors.polls import PollsForgotten
from tidegauge.objects.listing import Listed
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.sources.file.listing import printable
from tidegauge.sources.listings.entries import ENTRIES, Known, Novelty, digests, said, table_of
from tidegauge.sources.listings.late import LateFiles
from tidegauge.sources.listings.remembered import EVERY, recalled, remember
from tidegauge.sources.listings.staged import manifest_rows
from tidegauge.sources.listings.walking import Walk
from tidegauge.sources.polls.log import PollLog
from tidegauge.sources.polls.poller import Brought

__all__ = ["FILES", "KIND", "Lister", "OnChange"]

KIND: Final = "tidegauge/listing"
"""The kind of the states of listings."""

FILES: Final = 10_000
"""How many files an epoch takes at most."""

_PAGES: Final = 100
"""How many pages without a new file are one call: its time limit is for these."""

OnChange: TypeAlias = Literal["stop", "again", "ignore"]


@dataclass(slots=True)
class Lister:
    """A `Fetch` of the files that a pattern names and the log lacks. now: nanoseconds since 1970.

    limit: bytes of an epoch. settle: nanoseconds. ended: the last listing that came to its end. ignored: how many
    files it saw that have changed, and are left unread.
    """

    source: str
    pattern: str
    log: PollLog
    now: Callable[[], int]
    settle: int
    limit: int
    ordered: bool
    on_change: OnChange
    ended: Walk | None = field(default=None, init=False)
    ignored: int = field(default=0, init=False)
    _known: Known = field(default_factory=Known, init=False)
    _learnt: int = field(default=0, init=False)
    _unkept: int = field(default=0, init=False)
    """How many manifests have been learnt since the last one that a next run need not read."""
    _walk: Walk | None = field(default=None, init=False)
    _pages: Iterator[list[Listed]] = field(default_factory=lambda: iter(()), init=False)
    _left: Sequence[Listed] = field(default=(), init=False)
    _given: int = field(default=-1, init=False)
    """How many files the log has, if it has all that were given."""
    _changed: int = field(default=0, init=False)
    late: LateFiles = field(init=False)
    _back: Iterator[list[Listed]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.late = LateFiles(self.source, self.log.folder)

    def __call__(self, state: SourceState | None) -> Brought | None:
        """Return the next new files; None where there are none. Raises `ListedFileChanged`, and what listing does."""
        try:
            return self._next(state)
        except BaseException:
            self._walk, self._back, self._left = None, None, ()  # the next one lists from the beginning
            raise

    def _next(self, state: SourceState | None) -> Brought | None:
        files, last = _place(state)
        if self.ordered and files and not last:
            last = self._highest(files)  # it was not ordered before
        if files != self._given:  # the files given last were not staged, or another driver was first
            self._walk, self._left = None, ()
        if self._back is not None:
            return self._looked_back(self._back, files, last, state)
        if not self.ordered:
            self._learn(files)
        if self._walk is None or (self.ordered and self._walk.after > last):
            self._walk = Walk(self.pattern, self.now(), self.settle, last if self.ordered else "", self.ordered)
            self._pages, self._left, self._changed = self._walk.pages(), (), 0
        taken, ended = self._taken(last)
        self._given = files + len(taken)
        if ended:
            self.ended, self.ignored, self._walk, self._left = self._walk, self._changed, None, ()
        if taken:
            place: dict[str, Any] = {"files": files + len(taken)}
            if self.ordered:
                place["last"] = taken[-1].path
            return Brought(table_of(taken), SourceState(kind=KIND, source_id=self.source, value=place), not ended)
        if ended and self.ordered and last and self.late.due(self.now()):
            self._back = Walk(self.pattern, self.now(), self.settle).pages()
            self.late.begin()
        return None if ended and self._back is None else self._nothing_yet(state)

    def _nothing_yet(self, state: SourceState | None) -> Brought:
        same = state or SourceState(kind=KIND, source_id=self.source, value=None)
        return Brought(ENTRIES.empty_table(), same, more=True)

    def _looked_back(
        self, back: Iterator[list[Listed]], files: int, last: str, state: SourceState | None
    ) -> Brought | None:
        """Look for files that came late, some pages at a time. Where the log was cut, nobody can tell them."""
        try:
            self._learn(files)
        except PollsForgotten:
            back = iter(())
        for _ in range(_PAGES):
            if (page := next(back, None)) is None or not self.late.hold(page, self._known, last):
                self.late.end(self.now())
                self._back, self._known, self._learnt = None, Known(), 0
                return None
        return self._nothing_yet(state)

    def _learn(self, files: int) -> None:
        """Know what the log has up to a file, and keep that now and then for the next run."""
        if not self._learnt and files and (found := recalled(self.log, upto=files)) is not None:
            self._known, last = found
            self._learnt = self.log.after(last)
        while self._learnt < files:
            with self.log.whole(self._learnt, "to know which files were read needs"):
                manifest = self.log.manifest(self._learnt)
                for rows in manifest_rows(self.log, manifest):
                    self._known.add(*digests(rows))
            self._learnt, self._unkept = self.log.after(manifest), self._unkept + 1
            if self._unkept >= EVERY:
                remember(self.log, self._known, manifest)
                self._unkept = 0

    def _highest(self, files: int) -> str:
        """Return the last path that the log has up to a file."""
        at, last = 0, ""
        while at < files:
            manifest = self.log.manifest(at)
            last = max(
                last, *(path for rows in manifest_rows(self.log, manifest) for path in rows["path"].to_pylist())
            )
            at = self.log.after(manifest)
        return last

    def _taken(self, last: str) -> tuple[list[Listed], bool]:
        """Return the next new files of the listing, and whether it has ended with them."""
        taken: list[Listed] = []
        size = 0
        for _ in range(_PAGES):
            page: Sequence[Listed] | None = self._left or next(self._pages, None)
            if page is None:
                return taken, True
            fresh = [one for one in page if one.path > last] if self.ordered else self._fresh(page)
            for at, one in enumerate(fresh):
                if taken and (len(taken) == FILES or size + one.size > self.limit):
                    self._left = fresh[at:]
                    return taken, False
                taken.append(one)
                size += one.size
            self._left = ()
        return taken, False

    def _fresh(self, page: Sequence[Listed]) -> list[Listed]:
        """Return the files of a page that are new, and those that have changed, where they count again."""
        fresh: list[Listed] = []
        for one, novelty in zip(page, self._known.judge(page), strict=True):
            if novelty is Novelty.CHANGED:
                if self.on_change == "stop":
                    raise ListedFileChanged(path=printable(one.path), known="another version", found=said(one))
                self._changed += self.on_change == "ignore"
            if novelty is Novelty.NEW or (novelty is Novelty.CHANGED and self.on_change == "again"):
                fresh.append(one)
        return fresh


def _place(state: SourceState | None) -> tuple[int, str]:
    """Return how many files are in the log after a state, and the last path of an ordered listing."""
    value = None if state is None or state.kind != KIND else state.value
    if not isinstance(value, dict):
        return 0, ""
    files, last = value.get("files"), value.get("last", "")
    return (files if isinstance(files, int) else 0), str(last)
