"""What upstream keeps for a flow because it was not told that it may forget it, in bytes: for `status`.

Invariant: nothing is changed, and nothing raised: where upstream does not answer, a note says so.

>>> retained(object())
(None, '')
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.sources.push.protocol import HeldBack, HoldsBack
from tidegauge.sources.push.source import PushedSource

__all__ = ["retained"]


def retained(source: object) -> tuple[HeldBack | None, str]:
    """Return what upstream of a source keeps, None where that is not known; and why it is not, for people."""
    inner = source.source if isinstance(source, PushedSource) else source
    if not isinstance(inner, HoldsBack):
        return None, ""
    try:
        return inner.held_back(), ""
    except (TidegaugeError, OSError, ImportError) as error:
        return None, f"how much upstream keeps for the flow is not known: {brief(error)}"
