"""TG-0460 and on, TG-0624: rows in memory, and rows that are given to a function of the user's.

>>> error = EpochFunctionFailed(function="send", output="shop:mails", epoch=7, detail="ValueError: no address")
>>> print(error)
TG-0624: send(...) of the output 'shop:mails' raised in epoch 7: ValueError: no address
  likely cause: a bug in the function, rows that it does not expect, or a system that stayed away for all attempts
  what to do:   correct it and start again: the function gets the epoch again, and must not do twice what it has done
"""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "EpochFunctionBusy",
    "EpochFunctionFailed",
    "EpochFunctionWaits",
    "ProgressFileDamaged",
    "RowsInOtherProcess",
]


class RowsInOtherProcess(TidegaugeError):
    """A copy of a `MemorySink` that was asked for rows."""

    code = "TG-0460"
    what = "this is a copy of {sink}, and has no rows"
    cause = "it came here from another process, or was copied; the rows are with the sink that the flow was given"
    remedy = "ask that sink, in its process; to read rows elsewhere, write them with ParquetSink or DeltaSink"


class EpochFunctionWaits(Transient):
    """A function of the user's that raised an error which may pass."""

    code = "TG-0461"
    what = "{function}(...) of the output {output!r} raised in epoch {epoch}: {detail}"
    cause = "the system that it writes to is away or busy"
    remedy = "nothing, if it passes: the function gets the epoch again; after some attempts in a row the output fails"


class EpochFunctionBusy(Transient):
    """A function of the user's that another driver has called, and that has not returned."""

    code = "TG-0462"
    patient = True
    what = "another process is in the function of the output {output!r}: it holds {path}"
    cause = "an earlier driver of the flow is still alive, and waits for the function to return"
    remedy = "nothing, if it passes: the flow goes on once that process has ended; otherwise stop it"


class ProgressFileDamaged(Definite):
    """A progress file that cannot be read."""

    code = "TG-0463"
    what = "the progress file {path} cannot be read: {detail}"
    cause = "something else wrote it, or a newer version of Tidegauge"
    remedy = "restore it from a backup, or run the version that wrote it; without it every epoch is given anew"


class EpochFunctionFailed(Definite):
    """A function of the user's that failed for an epoch."""

    code = "TG-0624"
    what = "{function}(...) of the output {output!r} raised in epoch {epoch}: {detail}"
    cause = "a bug in the function, rows that it does not expect, or a system that stayed away for all attempts"
    remedy = "correct it and start again: the function gets the epoch again, and must not do twice what it has done"
