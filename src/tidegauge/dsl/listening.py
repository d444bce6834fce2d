"""Functions that are told each publication of a run, each in a thread of its own: what `Dataflow.on_epoch` adds, and
the listeners of a Spark session (`observing`).

Invariants. A run does not wait for a listener, but for its last call in the end; one that is slow gets the
epochs published meanwhile as one publication. A listener that raises is logged, and is called again.

>>> import tempfile, tidegauge as tg
>>> folder = tempfile.mkdtemp()
>>> flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
>>> orders = flow.source("orders", tg.GeneratorSource(10, columns="id long"))
>>> flow.sink("orders", orders, tg.ParquetSink(f"{folder}/orders"))
>>> @flow.on_epoch
... def told(publication):
...     print(publication.epochs, publication.rows)
>>> flow.run(engine="local").why
range(0, 1) {'orders': 10}
'sealed'
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from tidegauge.dsl.observing import ObservedFlow, observed
from tidegauge.errors.readers import EpochListenerFailed
from tidegauge.flow.board import Board
from tidegauge.flow.publication import Publication

if TYPE_CHECKING:
    from tidegauge.flow.runner import Runner

__all__ = ["LAST_CALL", "EpochListener", "listening"]

EpochListener: TypeAlias = Callable[[Publication], object]

LAST_CALL: Final = 15.0
"""Seconds for which a run waits in the end for what its listeners do."""

_log: Final = logging.getLogger(__name__)


@contextmanager
def listening(
    flow: str,
    listeners: Sequence[EpochListener],
    watch: Callable[[Board], None] | None,
    opened: Callable[[Runner], None] | None,
) -> Iterator[tuple[Callable[[Board], None], Callable[[Runner], None]]]:
    """Give two functions for a run, so that each listener is told its publications in this block.

    The first one watches its board, the second one is called when it is open. watch, opened: who else does so.
    """
    ears = [_Ear(flow, listener) for listener in listeners]
    query: ObservedFlow | None = None

    def opening(runner: Runner) -> None:
        nonlocal query
        if query is not None:
            query.goes_over(runner.flow)
        elif (query := observed(runner)) is not None:
            ears.append(_Ear(flow, query, begin=query.begin, end=query.end))
        if opened is not None:
            opened(runner)

    def watching(board: Board) -> None:
        for ear in ears:
            ear.hear(board.publication)
        if watch is not None:
            watch(board)

    try:
        yield watching, opening
    except Exception as error:
        if query is not None:
            query.error = error
        raise
    finally:
        for ear in ears:
            ear.end()
        until = time.monotonic() + LAST_CALL
        for ear in ears:
            ear.wait(until)


class _Ear:
    """A listener and its thread. Publications that come while the listener is busy become one.

    begin, end: called in that thread before the first and after the last one.
    """

    def __init__(
        self,
        flow: str,
        listener: EpochListener,
        *,
        begin: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._flow: Final = flow
        self._listener: Final = listener
        self._begin: Final = begin
        self._end: Final = end
        self._changed: Final = threading.Condition()
        self._heard: Publication | None = None
        self._next: Publication | None = None
        self._over = False
        self._thread: Final = threading.Thread(target=self._listen, name="tidegauge-on-epoch", daemon=True)
        self._thread.start()

    def hear(self, publication: Publication | None) -> None:
        """Take in a publication, once."""
        if publication is None or publication is self._heard:
            return
        self._heard = publication
        with self._changed:
            self._next = publication if self._next is None else self._next.then(publication)
            self._changed.notify()

    def end(self) -> None:
        """Have the thread end once it has told all that was heard."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def wait(self, until: float) -> None:
        """Wait for the end of the thread, until an instant of the monotonic clock."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            _log.warning("%s: a function of on_epoch has not returned after %s s", self._flow, LAST_CALL)

    def _listen(self) -> None:
        self._begin()
        self._hear_all()
        self._end()

    def _hear_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._next is not None)
                publication, self._next = self._next, None
            if publication is None:
                return
            try:
                self._listener(publication)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run does not depend on it
                name = getattr(self._listener, "__qualname__", repr(self._listener))
                failed = EpochListenerFailed(
                    flow=self._flow,
                    function=name,
                    lower=publication.epochs.start,
                    upper=publication.epochs.stop,
                    error=error,
                )
                _log.warning("%s", failed, exc_info=error)
