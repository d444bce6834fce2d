"""The seam to a cluster: what a source asks about topics, and whom. Whatever it decides, it decides on these answers.

A `Cluster` is asked for topics, and for where their partitions begin and end. `AskedCluster` asks a broker. A log
that is simulated in memory answers, too, and then the decisions of `probing` and `planning` run on it unchanged.

Invariant: what nobody can tell is left out of an answer; it is never made up.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from tidegauge.kafka import cluster
from tidegauge.kafka.clients import Client

__all__ = ["AskedCluster", "Cluster"]

_BETWEEN: Final = 0.3


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

        committed: the end is that of the committed transactions. Where nobody can tell, the partition is left out.
        """
        ...

    def wait(self) -> None:
        """Wait a moment before the same is asked again."""
        ...


@dataclass(frozen=True, slots=True)
class AskedCluster:
    """A cluster that is asked through a client. servers: for people."""

    client: Client
    servers: str

    def names(self) -> list[str]:
        """Return the names of all topics that we can see."""
        return cluster.names(self.client, servers=self.servers)

    def described(self, topics: Collection[str]) -> dict[str, cluster.Topic]:
        """Return the topics of these names that exist."""
        return cluster.described(self.client, topics, servers=self.servers)

    def offsets(
        self, places: Iterable[tuple[str, int]], at: Literal["earliest", "latest"] | int, *, committed: bool = True
    ) -> dict[str, int]:
        """Return what partitions have an answer for."""
        return cluster.offsets(self.client, places, at, servers=self.servers, committed=committed)

    def wait(self) -> None:
        """Wait for less than a second."""
        time.sleep(_BETWEEN)
