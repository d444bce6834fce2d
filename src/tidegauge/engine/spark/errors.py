"""What Spark's exceptions mean: a wrong expression, a row that an expression cannot take, or a failed job.

Spark gives every error of its own an SQLSTATE. Class 22 is a data exception, P0001 one that the user's SQL raised,
38000 one of a user's Python function; anything else is the engine's own trouble and may pass.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.flow import InvalidExpression, UnknownColumn

__all__ = ["MARK", "analysis_error", "carried_error", "carry", "lost", "quiet", "root_message", "row_error"]

MARK: Final = "tidegauge-error:"
_CARRIED: Final = re.compile(MARK + r"([A-Za-z0-9+/=]+)")
_STATE: Final = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_CUT: Final = 600


def carry(error: TidegaugeError) -> RuntimeError:
    """Return an exception that takes an error through Spark as text, from where there is no row to put it in."""
    return RuntimeError(MARK + base64.b64encode(json.dumps(error.encode()).encode()).decode())


def carried_error(error: BaseException) -> TidegaugeError | None:
    """Return the error that `carry` put into an exception that came back."""
    found = _CARRIED.search(str(error))
    return TidegaugeError.decode(json.loads(base64.b64decode(found[1]))) if found else None


def row_error(error: BaseException, *, python: bool) -> str | None:
    """Return the error in a row, if that is why a job failed. `python`: user's Python functions count too."""
    text = str(error)
    states = {*_STATE.findall(text), str(_of(error, "getSqlState"))}
    if any(state.startswith("22") or state == "P0001" for state in states):
        return root_message(error)
    return root_message(error) if python and "38000" in states else None


def lost(error: BaseException) -> bool:
    """Whether an exception of a classic session means that its JVM is no longer there."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return isinstance(error, ConnectionError | Py4JNetworkError)


def _of(error: BaseException, method: str) -> Any:
    return getattr(error, method, lambda: None)()


def root_message(error: BaseException) -> str:
    """Return the one line of an exception that says what happened, at most 600 characters long."""
    text = str(error)
    if raised := _python_line(text):
        return raised[:_CUT]
    aborted = re.search(r"Job aborted due to stage failure: (.*?)(?:\n|Driver stacktrace|$)", text)
    head = aborted[1] if aborted else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return head.strip()[:_CUT]


def _python_line(text: str) -> str | None:
    """Return the line of the last Python traceback in a message that names the exception."""
    _, found, after = text.rpartition("Traceback (most recent call last):\n")
    lines = after.splitlines() if found else []
    return next((line.strip() for line in lines if line.strip() and not line.startswith(" ")), None)


def analysis_error(error: Any, *, step: str, output: str, known: list[str]) -> TidegaugeError:
    """Return the error for an expression that Spark does not accept. `step` is like "select"."""
    condition = str(_of(error, "getCondition") or "")
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = str((_of(error, "getMessageParameters") or {}).get("objectName", "?"))
        parts = [part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)*)`", name)] or [name]
        return UnknownColumn(column=".".join(parts), where=f"{step} of output {output!r}", known=known)
    detail = re.sub(r" SQLSTATE: .*", "", root_message(error))
    return InvalidExpression(output=output, step=step, detail=detail, known=known)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep PySpark from logging the errors of this thread, which are raised anyway, or expected."""
    from pyspark.logger import PySparkLogger

    mine = threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return record.thread != mine

    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    for logger in loggers:
        logger.addFilter(others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(others)
