"""The sources of a flow that are polled: what asks their upstreams during a run, and nowhere else.

Invariant: there is one attendant a source and run, also where the run opens its flow anew, so that a poll which is
under way then is not begun a second time. All of them share their threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegauge.env import Env
from tidegauge.flow.spec import FlowSpec
from tidegauge.sources.abilities import Attendant, Attended
from tidegauge.sources.polls.threads import PollThreads

__all__ = ["Polling"]


class Polling:
    """The attendants of one run. `close` it in any case. A flow that follows another one has none: its owner asks."""

    def __init__(self, flow: FlowSpec, env: Env) -> None:
        sources = {} if flow.following is not None else flow.sources
        attended = {name: source for name, source in sources.items() if isinstance(source, Attended)}
        self._threads: Final = PollThreads(sources=len(attended))
        self.attendants: Final[Mapping[str, Attendant]] = {
            name: source.attended(env, beside=self._threads) for name, source in attended.items()
        }

    def close(self) -> None:
        """Let nothing more begin."""
        for attendant in self.attendants.values():
            attendant.close()
        self._threads.close()
