"""Several workers that run the same dataflows: in threads, or in one thread by a deterministic scheduler.

`build(worker)` runs once on each worker and builds the same dataflows there; only what it sends may differ. Then the
workers step until no dataflow is left.

Invariant: whatever the interleaving, the output of a dataflow up to a frontier is the same once that frontier has
passed. `DeterministicCluster` is there to try that: the same seed gives the same interleaving.

>>> from tidegauge.dataflow import INT
>>> def build(worker):
...     with worker.dataflow("hello", order=INT) as scope:
...         words, stream = scope.input("words")
...         heard = stream.broadcast().capture()
...     words.send(f"worker {worker.index}"); words.close()
...     return heard
>>> for heard in execute(build, peers=2):
...     print(sorted(event.batch for event in heard.drain() if hasattr(event, "batch")))
['worker 0', 'worker 1']
['worker 0', 'worker 1']
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Final, Generic, TypeVar

from tidegauge.dataflow.invocation import has_run
from tidegauge.dataflow.looking.log import LogEvent
from tidegauge.dataflow.schedule import NAP
from tidegauge.dataflow.worker import Worker
from tidegauge.dataflow.workers.mailbox import PromptMail, ShuffledMail
from tidegauge.errors.dataflow import Stuck, WorkerStopped

__all__ = ["DeterministicCluster", "execute"]

R = TypeVar("R")


def execute(
    build: Callable[[Worker], R],
    *,
    peers: int = 1,
    monotonic: Callable[[], float] = time.monotonic,
    validate: bool = False,
    log: Callable[[LogEvent], object] | None = None,
) -> list[R]:
    """Run a dataflow on `peers` workers, the first in this thread; return what `build` returned on each.

    log: called with what the workers do, from the thread of each; see `tidegauge.dataflow.looking.log`.

    An error on one worker stops all of them, abandons their dataflows, and is raised here; of several, that of the
    lowest worker. One that still builds is stopped where it steps, for instance at a barrier. Ctrl-C stops all, too;
    it waits for operators to finish their invocation, unless it is pressed once more.
    """
    run = _Threads(build)
    mail = PromptMail(peers)
    workers = [Worker(monotonic, validate=validate, index=index, mail=mail, log=log) for index in range(peers)]
    threads = [
        threading.Thread(target=run.drive, args=(worker, workers), name=f"worker {worker.index}", daemon=True)
        for worker in workers[1:]
    ]
    try:
        for thread in threads:
            thread.start()
        run.drive(workers[0], workers)
        _wait(threads)
    except BaseException:
        _stop(workers)
        _wait(threads)
        raise
    if run.errors:
        raise run.errors[min(run.errors)]
    return [run.results[index] for index in range(peers)]


def _stop(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stop()


def _wait(threads: list[threading.Thread]) -> None:
    for thread in threads:
        while thread.is_alive():  # it may be that not all could be started
            thread.join(NAP)


class _Threads(Generic[R]):
    """What the threads of one execution share. Each writes under its own number only."""

    def __init__(self, build: Callable[[Worker], R]) -> None:
        self.build: Final = build
        self.results: Final[dict[int, R]] = {}
        self.errors: Final[dict[int, BaseException]] = {}

    def drive(self, worker: Worker, workers: list[Worker]) -> None:
        """Build on one worker and step it to the end, or until another has failed."""
        try:
            self.results[worker.index] = _built(self.build, worker)
            while worker.step_or_park(None):
                pass
        except WorkerStopped:
            pass  # the error of the one that failed is raised
        except BaseException as error:  # noqa: BLE001 - it is raised by `execute`, when all threads have ended
            self.errors[worker.index] = error
            _stop(workers)


def _built(build: Callable[[Worker], R], worker: Worker) -> R:
    return has_run(build(worker), path=f"worker {worker.index}", role="build")


class DeterministicCluster:
    """Workers in one thread; who steps next, and what mail has come by then, is drawn from a seed.

    Time stands still while there is anything to do, and then goes on to the next timer.

    >>> from tidegauge.dataflow import INT
    >>> def build(worker):
    ...     with worker.dataflow("hello", order=INT) as scope:
    ...         words, stream = scope.input("words")
    ...         _ = stream.broadcast().inspect(lambda stamp, word: print(worker.index, word))
    ...     words.send(f"from {worker.index}"); words.close()
    >>> _ = DeterministicCluster(peers=2, seed=5).run(build)
    1 from 1
    0 from 0
    0 from 1
    1 from 0
    """

    def __init__(self, *, peers: int = 1, seed: int, validate: bool = True) -> None:
        self._random: Final = Random(seed)  # noqa: S311 - it draws an interleaving, no secret
        self._mail: Final = ShuffledMail(peers, self._random)
        self._now = 0.0
        self.workers: Final = tuple(
            Worker(self.monotonic, validate=validate, index=index, mail=self._mail) for index in range(peers)
        )

    def monotonic(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def step(self) -> bool:
        """Step one worker. Return whether any has a dataflow left."""
        self._pass_time()
        self._random.choice(self.workers).step()
        return any(worker.dataflows for worker in self.workers)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do before the next timer: no worker is active and no mail under way."""
        return all(worker.idle for worker in self.workers)

    def settle(self) -> None:
        """Step until there is nothing to do but what timers and inputs may bring."""
        while not self.idle:
            self.step()

    def run(self, build: Callable[[Worker], R]) -> list[R]:
        """Run a dataflow to its end; return what `build` returned on each worker.

        Raises Stuck when nothing is left to do and a dataflow is not complete: nobody else could ever go on.
        """
        results = [_built(build, worker) for worker in self.workers]
        while self.step():
            if self.idle and all(worker.next_timer is None for worker in self.workers):
                raise Stuck(holders=[str(holder) for worker in self.workers for holder in worker.explain_stuck()])
        return results

    def _pass_time(self) -> None:
        if self.idle:
            due = [worker.next_timer for worker in self.workers if worker.next_timer is not None]
            self._now = max(self._now, min(due, default=self._now))
