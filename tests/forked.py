"""Functions in processes of their own, each forked from one that has everything imported.

That one is multiprocessing's fork server: it runs no thread, so what a child does with threads, files and signals
depends on nothing that tests before it have done.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any, Final

from tests.warm import IMPORTED

__all__ = ["FORKS", "end_of"]

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([*IMPORTED, "tidegauge.sinks", "tests.forked"])


def end_of(function: Callable[..., object], *arguments: Any, within: float = 60.0) -> int:
    """Run a function that can be imported; return 0, or less the number of the signal that ended its process.

    Fails with the traceback of an exception.
    """
    said, says = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_run, args=(says, function, arguments))
    process.start()
    says.close()
    try:
        assert said.poll(within), f"no end in {within:g} seconds"
        raise AssertionError(said.recv())
    except EOFError:  # nothing was raised
        process.join(within)
        assert process.exitcode is not None
        return process.exitcode
    finally:
        process.kill()
        process.join()


def _run(says: Any, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    try:
        function(*arguments)
    except BaseException:
        says.send(traceback.format_exc())
