"""The bound part of a log of polls, held against the log: a binding has the digest of its last manifest.

Invariant: a log that does not go on from its bound part, or on to its end, is an error of its source.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime.polled import POLLS
from tidegauge.sources.polls.log import PollLog, PollManifest
from tidegauge.sources.staging import folder_in

__all__ = ["BoundLog", "digest_of", "log_at"]


def digest_of(bound: Bound) -> str:
    """Return the digest of the last poll that is bound, "" before the first."""
    return str(bound.details[POLLS]["digest"]) if POLLS in bound.details else ""


def log_at(folder: str, owner: tuple[str, str], incarnation: int, *, by_rows: bool = False) -> PollLog:
    """Return the log of an incarnation: a new one begins with the first poll, and without a state.

    folder: of all sources. owner: the flow and the name of this one.
    """
    return PollLog(folder_in(folder, *owner, str(incarnation)), owner[1], by_rows)


@dataclass(frozen=True, slots=True)
class BoundLog:
    """The log of the present incarnation, and the bindings of its source."""

    log: PollLog
    bound: Bound

    def ahead(self, last: int) -> list[PollManifest]:
        """Return the polls that are staged and not bound, in their order. last: the number of the last one bound.

        Raises `UpstreamRecreated`, `PollDamaged`, `PollGone`, and `OSError` where their folder is away.
        """
        end = self.bound.frontier[POLLS]
        digest = self.log.check_bound(last, digest_of(self.bound)) if end else ""
        return list(self.log.following(end, digest))

    def check_end(self, last: PollManifest) -> None:
        """See that the poll after the last one read follows it, or that it is the last one bound.

        Raises `UpstreamRecreated`, `PollDamaged`.
        """
        after = self.log.after(last)
        if after == self.bound.frontier[POLLS]:
            if last.digest != (known := digest_of(self.bound)):
                self.log.check_bound(last.poll, known)
            return
        try:
            following = self.log.manifest(after)
        except FileNotFoundError:
            return
        self.log.check(following.poll, "its predecessor", following.before, last.digest)
