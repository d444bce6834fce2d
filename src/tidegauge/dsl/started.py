"""A run in a thread of its own: what `Dataflow.start` returns.

Invariants. It is stopped by `stop`, and by leaving its `with` block, and by nothing else: dropping a handle leaves
the run alone, as with a future. `wait` raises whatever ended the run, each time. No signal handler is set.

The thread does not keep the program alive. When that ends without `stop`, the run ends as if it were killed: what it
had not committed is done again by the next one.

>>> import tempfile, tidegauge as tg
>>> folder = tempfile.mkdtemp()
>>> flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
>>> orders = flow.source("orders", tg.GeneratorSource(10, columns="id long"))
>>> flow.sink("orders", orders, tg.ParquetSink(f"{folder}/orders"))
>>> with flow.start(engine="local") as run:
...     print(run.wait().why)
sealed
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Final

from tidegauge.dataflow.schedule import NAP, Bell
from tidegauge.errors.base import brief
from tidegauge.errors.flow import WaitsForItself
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import status
from tidegauge.looking.reports import FlowReport

if TYPE_CHECKING:
    from tidegauge.flow.runner import Outcome, Runner

__all__ = ["FlowRun"]


class FlowRun:
    """A flow that runs in a thread of its own, from when it has opened its store and its tables."""

    def __init__(self, flow: Flow, run: Callable[[Callable[[Runner], None]], Outcome]) -> None:
        """Begin to run, and wait until the flow is open. run: runs it, and calls what it is given when it is open.

        Raises what `run` raises before that.
        """
        self.flow: Final = flow
        self._name: Final = flow.spec.name
        self._run: Final = run
        self._ended: Final[Future[Outcome]] = Future()
        self._open: Final = Bell()
        self._runner: Runner | None = None
        self._stopping = False
        self._thread: Final = threading.Thread(target=self._drive, name=f"tidegauge {self._name}", daemon=True)
        self._thread.start()
        try:
            while not self._open.heard(within=NAP):
                pass
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        if self._runner is None:
            self._ended.result()

    def _drive(self) -> None:
        try:
            self._ended.set_result(self._run(self._opened))
        except BaseException as error:  # noqa: BLE001 - it is raised by `wait`
            self._ended.set_exception(error)
        finally:
            self._open.ring()

    def _opened(self, runner: Runner) -> None:
        self._runner = runner
        if self._stopping:
            runner.stop()
        self._open.ring()

    def stop(self) -> None:
        """Bind nothing more, finish the current work, and end. Returns at once; from any thread."""
        self._stopping = True
        if self._runner is not None:
            self._runner.stop()

    def wait(self, timeout: float | None = None) -> Outcome:
        """Wait until the run has ended, and return where it stopped. Raises what ended it, each time.

        Raises TimeoutError after `timeout` seconds, when the run goes on; WaitsForItself in the thread of the run.
        """
        if threading.current_thread() is self._thread:
            raise WaitsForItself(flow=self._name)
        until = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            left = NAP if until is None else min(NAP, until - time.monotonic())
            if left <= 0:
                break
            self._thread.join(left)
        return self._ended.result(0)

    @property
    def status(self) -> FlowReport:
        """Where the flow stands, by its store and its tables, and by asking its sources: see `tidegauge.status`."""
        return status(self.flow)

    def __enter__(self) -> FlowRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait. What ended the run is raised, unless the block has raised something else."""
        self.stop()
        try:
            self.wait()
        except Exception as failed:
            if error is None:
                raise
            if failed is not error:
                error.add_note(f"the run of the flow {self._name!r} had failed, too: {brief(failed)}")

    def __repr__(self) -> str:
        state = "running"
        if self._ended.done():
            failed = self._ended.exception()
            state = self._ended.result().why if failed is None else f"failed: {brief(failed)}"
        elif self._stopping:
            state = "stopping"
        return f"FlowRun({self._name!r}: {state})"
