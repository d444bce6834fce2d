"""A whole run of a flow: its engine, the threads beside the worker, and a runner that is stepped to the end.

Invariant: whatever a run has made for itself (the engine, the threads, the lease) it gives back, however it ends; and
no error leaves it that quotes a secret of the store's address.

>>> import tidegauge as tg
>>> chosen("local", None)[1], chosen(tg.LocalEngine(), None)[1]
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.redaction import Redaction
from tidegauge.flow.beside import interruptible
from tidegauge.flow.board import Board
from tidegauge.flow.runner import Outcome, Runner
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.plan import Engine
from tidegauge.remap.round import Requests
from tidegauge.remap.store import check_rate, secrets

__all__ = ["chosen", "run", "threads"]


def threads(flow: FlowSpec) -> ThreadPoolExecutor:
    """Return the threads beside the worker: enough that nobody waits for somebody else's work.

    A probe or a connection, and an acknowledgement, of each source; a job of each source and output that is staged
    apart, and of each source's late outputs; a commit of each output; the others' job; a look at what people decided.
    """
    return ThreadPoolExecutor(4 * len(flow.sources) + 2 * len(flow.outputs) + 2, thread_name_prefix="tidegauge")


@contextmanager
def _without(known: Sequence[str]) -> Iterator[None]:
    """Let no error out that quotes a secret."""
    try:
        yield
    except Exception as error:
        redacted = Redaction(known).error(error)
        if redacted is error:
            raise
        raise redacted from None


def chosen(engine: Literal["spark", "local", "sail"] | Engine, spark: Any) -> tuple[Engine, bool]:
    """Return the engine to use, and whether it is ours to close."""
    if engine in ("local", "sail") and spark is not None:
        raise InvalidArgument(parameter="spark", value=spark, expected=f"no session on the {engine} engine")
    if engine == "local":
        from tidegauge.engine.local import LocalEngine

        return LocalEngine(), True
    if engine == "sail":
        from tidegauge.engine.sail.engine import SailEngine

        return SailEngine(), True
    if engine == "spark":
        from tidegauge.engine.spark.engine import SparkEngine

        return SparkEngine(spark), True
    if isinstance(engine, str):
        raise InvalidArgument(parameter="engine", value=engine, expected="'spark', 'local', 'sail' or an engine")
    return engine, False


def run(
    flow: FlowSpec,
    *,
    until: Literal["caught-up"] | None,
    spark: Any,
    engine: Literal["spark", "local", "sail"] | Engine,
    env: Env,
    watch: Callable[[Board], None] | None,
    requests: Requests,
    rate: int | None = None,
    opened: Callable[[Runner], None] | None = None,
    newer: Callable[[], FlowSpec] | None = None,
) -> Outcome:
    """Run a flow in this thread; see `Dataflow.run`.

    opened: called once the store and the tables are open, and again for each newer flow that the run goes over to.
    newer: loads the flow as declared by now (`adding`).
    """
    if until not in (None, "caught-up"):
        raise InvalidArgument(parameter="until", value=until, expected="'caught-up' or None")
    if rate is not None:
        check_rate(rate)
    picked, ours = chosen(engine, spark)
    with ExitStack() as resources:
        resources.enter_context(_without(secrets(flow.store)))
        if ours:
            resources.callback(picked.close)
        while True:
            with ExitStack() as one:
                pool = threads(flow)
                one.callback(pool.shutdown, wait=False, cancel_futures=True)
                runner = Runner(
                    flow,
                    picked,
                    env=env,
                    spawn=pool.submit,
                    watch=watch,
                    batch=until is not None,
                    requests=requests,
                    rate=rate,
                    newer=newer,
                )
                one.callback(runner.close)
                if opened is not None:
                    opened(runner)
                if watch is not None:
                    watch(runner.board)
                with interruptible(runner):
                    outcome = runner.run(until)
            if runner.successor is None:
                return outcome
            flow, rate = runner.successor, None
