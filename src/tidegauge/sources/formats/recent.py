"""What was not there a moment ago is not asked for again yet.

Definition: a key is held from when it was noted until `seconds` later. Invariant: at most `room` keys are held, the
latest; whoever asks says what time it is, so nothing here waits or looks at a clock.

>>> missing = Recent(seconds=5.0, room=2)
>>> missing.note(7, at=100.0)
>>> missing.holds(7, at=104.9), missing.holds(7, at=105.0), missing.holds(8, at=100.0)
(True, False, False)
>>> for key in (1, 2, 3):
...     missing.note(key, at=100.0)
>>> [key for key in (1, 2, 3) if missing.holds(key, at=101.0)]
[2, 3]
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Recent"]


@dataclass(frozen=True, slots=True)
class Recent:
    """Keys that were noted of late. Several threads may use one: at worst a key is forgotten early."""

    seconds: float
    room: int
    _until: dict[int, float] = field(default_factory=dict)

    def note(self, key: int, *, at: float) -> None:
        """Hold a key from now on, and let go of the oldest ones beyond the room."""
        self._until.pop(key, None)
        self._until[key] = at + self.seconds
        for oldest in list(self._until)[: -self.room]:
            self._until.pop(oldest, None)

    def holds(self, key: int, *, at: float) -> bool:
        """Whether the key is held."""
        return at < self._until.get(key, at)
