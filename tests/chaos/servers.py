"""The broker of a chaos: it finds soon that the producer of a transaction is gone."""

from __future__ import annotations

from tidegauge.testing import KafkaBroker

__all__ = ["a_broker"]

SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


def a_broker() -> KafkaBroker:
    """Return one that is to be started."""
    return KafkaBroker(settings=SOON, within=120.0)
