"""Maintenance as part of a run: a thread beside the driver keeps the flow's tables in shape, time and again.

Invariant: a run does not fail because of it, nor does it wait but at its end, for the pack under way. An error is
logged when it comes up, and the next time is another attempt.

>>> import tempfile, tidegauge as tg
>>> folder = tempfile.mkdtemp()
>>> flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
>>> orders = flow.source("orders", tg.GeneratorSource(10, columns="id long"))
>>> flow.sink("orders", orders, tg.DeltaSink(f"{folder}/orders"))
>>> flow.run(engine="local", maintain=60).why
'sealed'
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidegauge.env import Env
from tidegauge.errors.base import brief
from tidegauge.errors.flow import InvalidArgument
from tidegauge.flow.spec import Flow

__all__ = ["maintained"]

_log: Final = logging.getLogger(__name__)


@contextmanager
def maintained(flow: Flow, every: float | None, env: Env) -> Iterator[None]:
    """Maintain a flow's tables each time that `every` seconds have passed, while the block runs; None for not at all.

    Raises `InvalidArgument`.
    """
    if every is None:
        yield
        return
    if isinstance(every, bool) or not isinstance(every, int | float) or not 0 < every < math.inf:
        raise InvalidArgument(parameter="maintain", value=every, expected="a positive number of seconds")
    over = threading.Event()
    thread = threading.Thread(target=_maintain, args=(flow, every, env, over), name="tidegauge-maintain", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _maintain(flow: Flow, every: float, env: Env, over: threading.Event) -> None:
    from tidegauge.maintenance.maintain import maintain_until

    said: dict[str, str] = {}
    while not over.wait(every):
        found: dict[str, Exception | None]
        try:
            found = {one.output: one.error for one in maintain_until(flow, over.is_set, env=env).outputs}
        except Exception as error:  # noqa: BLE001 - whatever it is, the run does not depend on it
            found = {"": error}
        for output, failed in found.items():
            text = "" if failed is None else brief(failed)
            if text and said.get(output) != text:
                _log.warning("maintenance of %s: %s", output or flow.spec.name, text)
            said[output] = text
