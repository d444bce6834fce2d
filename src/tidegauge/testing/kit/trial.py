"""One law, tried on a fresh bench in a thread of its own, so that a call that never returns holds up nobody.

Invariant: the check goes on after the deadline, whatever the connector does, and names the call that was under way.

A law is a function over a bench. Its name and its docstring are the words of the report: the first paragraph is the
law, the rest is what to do when it is broken. It raises `LawBroken` with an example, or `NotTried`.
"""

from __future__ import annotations

import contextvars
import inspect
import linecache
import sys
import tempfile
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Generic, TypeVar

from tidegauge.errors.base import brief
from tidegauge.errors.testing import BenchNotMade
from tidegauge.testing.kit.report import ConnectorReport, LawFinding

__all__ = ["Law", "LawBroken", "NotTried", "beside", "call_of", "check", "expect", "raises"]

Bench = TypeVar("Bench")
Subject = TypeVar("Subject")
Law = Callable[[Subject], None]
HERE: Final = (str(Path(__file__).parent), threading.__file__, typing.__file__)
"""Files whose calls are our own. `typing` looks at attributes where we ask whether something is of a protocol."""
_HANGS: Final = (
    "Give every request to the other side a time limit, and raise `Transient` or an `OSError` when it is over. "
    "If it is only slow, give the check more time: deadline=..."
)


class LawBroken(Exception):
    """A law does not hold; the message is an example."""


class NotTried(Exception):
    """A law cannot be tried; the message says why."""


def expect(condition: object, example: str) -> None:
    """Raise `LawBroken` unless the condition holds."""
    if not condition:
        raise LawBroken(example)


def raises(wanted: type[Exception] | tuple[type[Exception], ...], what: str, call: Callable[[], Any]) -> None:
    """Raise `LawBroken` unless the call raises one of the wanted errors. what: the call, for the example."""
    names = wanted.__name__ if isinstance(wanted, type) else " or ".join(one.__name__ for one in wanted)
    try:
        answer = call()
    except wanted:
        return
    except Exception as error:
        raise LawBroken(f"{what} raised {brief(error)}, where it should raise {names}") from error
    raise LawBroken(f"{what} raised no {names}" + (f", and gave {answer}" if isinstance(answer, str) else ""))


def beside(*functions: Callable[[], Any]) -> list[Any]:
    """Run functions at once, each in a thread, and return what they return. Raises what the first of them raised."""
    results: list[Any] = [None] * len(functions)
    raised: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = functions[number]()
        except BaseException as error:  # noqa: BLE001 (it is raised again, in the law's thread)
            raised.append(error)

    name = threading.current_thread().name
    threads = [threading.Thread(target=run, args=(n,), name=name, daemon=True) for n in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in raised:
        raise error
    return results


@dataclass
class _Trial(Generic[Bench, Subject]):
    """A law under way."""

    law: Law[Subject]
    make: Callable[[Path], Bench]
    put: Callable[[Bench, Path], Subject]
    kind: str
    like: type
    connector: str = ""
    ended: BaseException | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="tidegauge-kit-", ignore_cleanup_errors=True) as name:
                folder = Path(name, "place")
                folder.mkdir()
                subject = self.put(self.bench(folder), folder)
                try:
                    self.law(subject)
                finally:
                    closing = getattr(subject, "close", None)
                    if closing is not None:
                        closing()
        except BaseException as error:  # noqa: BLE001 (it is judged, or raised again, by the one who waits)
            self.ended = error
        finally:
            self.over.set()

    def bench(self, folder: Path) -> Bench:
        try:
            bench = self.make(folder)
        except Exception as error:
            raise BenchNotMade(kind=self.kind, problem=f"{_named(self.make)} raised {brief(error)}") from error
        if not isinstance(bench, self.like):
            raise BenchNotMade(kind=self.kind, problem=f"{_named(self.make)} returned {bench!r}")
        self.connector = type(getattr(bench, self.kind)).__name__
        return bench


def check(
    kind: str,
    like: type,
    laws: Sequence[Law[Subject]],
    make: Callable[[Path], Bench],
    *,
    deadline: float,
    put: Callable[[Bench, Path], Subject],
) -> ConnectorReport:
    """Try laws one after the other, each on a bench of its own in an empty folder; report all of them.

    kind: the member of the bench that is checked. put: makes the subject of the laws of a bench and its folder. After
    a law that was not through at its deadline no other is tried: its thread is still there, and may hold anything.
    """
    findings: list[LawFinding] = []
    connector, hung = kind, ""
    for law in laws:
        if hung:
            findings.append(LawFinding(_name(law), untried=f"{hung} did not come to an end before"))
            continue
        trial = _Trial(law, make, put, kind, like)
        name = f"tidegauge-kit-{id(trial):x}"
        thread = threading.Thread(target=contextvars.copy_context().run, args=(trial.run,), name=name, daemon=True)
        thread.start()
        if not trial.over.wait(deadline):
            hung = f"{_name(law)!r}"
        findings.append(_finding(trial, name, deadline))
        connector = trial.connector or connector
    return ConnectorReport(connector, tuple(findings))


def _finding(trial: _Trial[Any, Any], thread: str, deadline: float) -> LawFinding:
    name, (says, remedy), ended = _name(trial.law), _words(trial.law), trial.ended
    if not trial.over.is_set():
        return LawFinding(name, says, _HANGS, f"after {deadline:g} seconds it was still in {_under_way(thread)}")
    match ended:
        case None:
            return LawFinding(name)
        case NotTried():
            return LawFinding(name, untried=str(ended))
        case LawBroken():
            return LawFinding(name, says, remedy, str(ended))
        case BenchNotMade():
            raise ended
        case Exception():
            return LawFinding(name, says, remedy, f"{_raiser(ended.__traceback__)} raised {brief(ended)}")
        case _:  # such as a test that is skipped
            raise ended


def _named(made: Any) -> str:
    return f"`{getattr(made, '__qualname__', type(made).__name__)}`"


def _name(law: Law[Any]) -> str:
    function: Any = law
    return str(getattr(function, "func", function).__name__).replace("_", " ")


def _words(law: Law[Any]) -> tuple[str, str]:
    function: Any = law
    text = inspect.getdoc(getattr(function, "func", function)) or ""
    says, _, remedy = text.partition("\n\n")
    return " ".join(says.split()), " ".join(remedy.split())


def _under_way(thread: str) -> str:
    """Return the calls that threads of this name are in."""
    found = [call_of(one.ident) for one in threading.enumerate() if one.name == thread and one.ident is not None]
    return " and ".join(dict.fromkeys(text for text in found if text)) or "the law itself"


def call_of(thread: int) -> str:
    """Return the call out of the kit that a thread is in, "" for one that is in none."""
    frames = sys._current_frames()  # noqa: SLF001 (there is no other way to look at a thread from outside)
    return _call([(frame.f_code, frame.f_lineno) for frame in _outwards(frames.get(thread))][::-1])


def _raiser(traceback: TracebackType | None) -> str:
    """Return the call out of the kit that an exception came from, or our own line that got a wrong answer."""
    stack = []
    while traceback is not None:
        stack.append((traceback.tb_frame.f_code, traceback.tb_lineno))
        traceback = traceback.tb_next
    return _call(stack) or _line(stack)


def _line(stack: Sequence[tuple[CodeType, int]]) -> str:
    code, line = stack[-1]
    text = linecache.getline(code.co_filename, line).partition("  # ")[0].strip()
    return f"the kit, at `{text}` in `{code.co_name}`,"


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _call(stack: Sequence[tuple[CodeType, int]]) -> str:
    """Return the first call that left the kit, and the line that it had come to, of a stack from the outside in."""
    ours = [number for number, (code, _) in enumerate(stack) if code.co_filename.startswith(HERE)]
    out = next((n for n in range(ours[0], len(stack)) if n not in ours), None) if ours else None
    if out is None:
        return ""
    file = stack[out][0].co_filename  # of the connector; it may be waiting deep in a library
    code, line = next((code, line) for code, line in reversed(stack) if code.co_filename == file)
    called = stack[out][0].co_qualname.replace("<locals>.", "")
    return f"`{called}` ({Path(code.co_filename).name}:{line}, in `{code.co_name}`)"
