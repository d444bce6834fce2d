"""The seam to a cluster: what a source asks about topics, and whom. Whatever it decides, it decides on these answers.

A `Cluster` is asked for topics, and for where their partitions begin and end. A broker answers through
`tidegauge.kafka.cluster.AskedCluster`. A log that is simulated in memory answers, too, and then the decisions of
`probing` and `planning` run on it unchanged.

Invariant: what nobody can tell is left out of an answer; it is never made up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, Protocol

from tidegauge.kafka import cluster

__all__ = ["Cluster"]


class Cluster(Protocol):
    """Who tells about topics. Everything here raises what `tidegauge.kafka` raises."""

    def names(self) -> list[str]:
        """Return the names of all topics that we can see."""
        ...

    def described(self, topics: Collection[str]) -> dict[str, cluster.Topic]:
        """Return the topics of these names that exist."""
        ...

    def offsets(
        self, places: Iterable[tuple[str, int]], at: Literal["earliest", "latest"] | int, *, committed: bool = True
    ) -> dict[str, int]:
        """Return where each partition begins, ends, or has its first record of `at` milliseconds since 1970 or later.

        committed: the end is that of the committed transactions, and a record of `at` or later counts only before it.
        Where nobody can tell, the partition is left out; of a time all are told, or an error is raised.
        """
        ...

    def wait(self) -> None:
        """Wait a moment before the same is asked again."""
        ...
