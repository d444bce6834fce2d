"""How long upstream keeps what an output lacks that does not go on: one that is paused, or has failed.

Definition. An output's patience is *spent* when it does not go on, and the first epoch that it lacks was minted
longer ago than its patience. From then on it no longer bounds the acknowledged position of its source.

Invariant: an output that goes on is never spent, however far behind. Nothing of this is durable: it follows from the
decisions, the table's upper and the time of an epoch, so a restart does not begin it anew.

>>> from dataclasses import replace
>>> from datetime import UTC
>>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
>>> hour = Patience({"copy": 3600.0}, idle=lambda: {"copy", "large"}, minted_at={7: noon}.get, now=lambda: noon)
>>> hour.spent({"copy": 7, "large": 7})
frozenset()
>>> later = replace(hour, now=lambda: noon + timedelta(hours=2))
>>> later.spent({"copy": 7, "large": 7}), later.spent({"copy": 8}), replace(later, idle=set).spent({"copy": 7})
(frozenset({'copy'}), frozenset(), frozenset())
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

__all__ = ["Patience"]

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """The patience of a flow's outputs, in seconds; one without bounds its source for ever.

    idle: the outputs that do not go on at present. minted_at: when an epoch was minted, None where it is not bound;
    it is asked once for each epoch that such an output stands at.
    """

    seconds: Mapping[str, float]
    idle: Callable[[], Collection[str]]
    minted_at: Callable[[int], datetime | None]
    now: Callable[[], datetime]
    _asked: dict[str, tuple[int, datetime | None]] = field(default_factory=dict, init=False)
    _told: set[str] = field(default_factory=set, init=False)

    def spent(self, uppers: Mapping[str, int]) -> frozenset[str]:
        """Return the outputs whose patience is spent. uppers: the first epoch that each of them lacks."""
        idle = self.idle()
        found = frozenset(
            name
            for name, patience in self.seconds.items()
            if name in idle and self._over(name, uppers[name], patience)
        )
        for name in sorted(found - self._told):
            log.warning(
                "output %s does not go on: upstream may forget what it lacks, from epoch %d on", name, uppers[name]
            )
        self._told.clear()
        self._told.update(found)
        return found

    def _over(self, name: str, epoch: int, patience: float) -> bool:
        known, minted = self._asked.get(name, (-1, None))
        if known != epoch or minted is None:
            minted = self.minted_at(epoch)
            self._asked[name] = epoch, minted
        return minted is not None and self.now() - minted > timedelta(seconds=patience)
