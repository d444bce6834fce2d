"""The root of all errors: a stable code, what happened, the likely cause, the next thing to do.

Invariant: a code is never reused and never changes its meaning.

>>> error = UnknownError(message="the tide went out")
>>> print(error)
TG-0001: the tide went out
  likely cause: a newer version wrote it
  what to do:   look at it with that version
>>> TidegaugeError.decode(error.encode()).code
'TG-0001'

Errors cross process boundaries (from a task to the driver, from the driver to the store) as plain JSON data,
never as pickles: `encode` and `decode` are that form. Some are of surroundings that come back, and are `waited_out`.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

__all__ = [
    "CODES",
    "Definite",
    "TidegaugeError",
    "Transient",
    "Unexpected",
    "UnknownError",
    "brief",
    "cause_of",
    "nearest",
    "quoted",
    "waited_out",
]

CODES: Final[dict[str, type[TidegaugeError]]] = {}
"""Every error class by its code."""

_PASSING: Final = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENXIO, errno.ENODEV, errno.EROFS),
        *(errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT),
    }
)
_NUMBER: Final = re.compile(r"(?i)\b(?:errno|os error)\s+(\d+)")
_TEXT: Final = re.compile("No space left on device|Disk quota exceeded|Read-only file system")
"""How the JVM says it."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` most likely stands for, or None.

    >>> nearest("oders", ["orders", "clicks"])
    'orders'
    """
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def cause_of(error: BaseException) -> str:
    """Return the likely cause of an error, to be quoted within another one.

    >>> cause_of(UnknownError(message="the tide went out")), cause_of(OSError(28, "No space left on device"))
    ('a newer version wrote it', 'No space left on device')
    """
    if isinstance(error, TidegaugeError):
        return error.likely_cause
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def quoted(names: Iterable[str]) -> str:
    """Return names as one readable list, cut after twenty."""
    listed = [repr(str(name)) for name in names]
    rest = len(listed) - 20
    return ", ".join(listed[:20]) + (f" and {rest} more" if rest > 0 else "") if listed else "none"


def _plain(value: Any) -> Any:
    """Return a value as JSON data; anything else is shown as its text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(value)


def brief(error: BaseException) -> str:
    """Return an error as one line, to be quoted within another one.

    >>> brief(UnknownError(message="the tide went out")), brief(OSError(28, "No space left on device"))
    ('TG-0001, the tide went out', 'OSError: [Errno 28] No space left on device')
    """
    text = (
        f"{error.code}, {error.summary}" if isinstance(error, TidegaugeError) else f"{type(error).__name__}: {error}"
    )
    return " ".join(text.split())


class TidegaugeError(Exception):
    """Root of all errors. A class sets `code`, `what`, `cause` and `remedy` as format strings over its evidence.

    `evidence` holds plain JSON values only, so that an error can be stored and sent.

    of_start: whether a push source raises it because upstream no longer has where a connection is to begin. Outputs
    that lack less may go on then.
    """

    of_start: ClassVar[bool] = False

    code: ClassVar[str] = "TG-0000"
    what: ClassVar[str] = "{message}"
    cause: ClassVar[str] = "an error without a class of its own"
    remedy: ClassVar[str] = "run again with --debug and report what it prints"

    evidence: Mapping[str, Any]

    def __init_subclass__(cls) -> None:
        """Register the class under its code; two classes of one code are a programming error."""
        super().__init_subclass__()
        if "code" in cls.__dict__:
            if cls.code in CODES:
                raise TypeError(f"{cls.__name__} and {CODES[cls.code].__name__} share the code {cls.code}")
            CODES[cls.code] = cls

    def __init__(self, **evidence: Any) -> None:
        self.evidence = {name: _plain(value) for name, value in evidence.items()}
        super().__init__(self.evidence)

    def _format(self, template: str) -> str:
        shown = {key: quoted(v) if isinstance(v, list | tuple) else v for key, v in self.evidence.items()}
        return template.format(**shown)

    @property
    def summary(self) -> str:
        """What happened, in one sentence, without the code."""
        return self._format(self.what)

    @property
    def likely_cause(self) -> str:
        """The likely cause, with the evidence filled in."""
        return self._format(self.cause)

    @property
    def next_step(self) -> str:
        """The next thing to do, with the evidence filled in."""
        return self._format(self.remedy)

    def __str__(self) -> str:
        return f"{self.code}: {self.summary}\n  likely cause: {self.likely_cause}\n  what to do:   {self.next_step}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self).code, dict(self.evidence)))

    def encode(self) -> dict[str, Any]:
        """Return the error as JSON data."""
        return {"code": self.code, "evidence": dict(self.evidence)}

    @staticmethod
    def decode(data: Mapping[str, Any]) -> TidegaugeError:
        """Return the error that `encode` described. A code of a newer version becomes `UnknownError`."""
        return _rebuild(str(data["code"]), dict(data["evidence"]))


def _rebuild(code: str, evidence: dict[str, Any]) -> TidegaugeError:
    known = CODES.get(code)
    if known is None:
        return UnknownError(message=f"{code}: {evidence}")
    return known(**evidence)


class Transient(TidegaugeError):
    """May pass by itself: retried with backoff while the source or output is `stalled`.

    patient: whether it is waited for as long as it takes, as for an upstream that is away, by who would otherwise
    give up.
    """

    patient: ClassVar[bool] = False


class Definite(TidegaugeError):
    """Part of the data from a position on: retrying cannot help, the source or output is `failed`.

    of_stream: whether it is one of a stream alone, of a source with several: where its rows are decoded, the outputs
    of that stream fail, and the others go on.
    """

    of_stream: ClassVar[bool] = False


class UnknownError(TidegaugeError):
    """A stored error whose code this version does not know."""

    code = "TG-0001"
    what = "{message}"
    cause = "a newer version wrote it"
    remedy = "look at it with that version"


class Unexpected(TidegaugeError):
    """An exception that is none of ours."""

    code = "TG-0002"
    what = "{message}"
    cause = "a bug, or trouble of this machine that has no code yet"
    remedy = "run again with --debug and report what it prints; starting again is safe"


def waited_out(error: BaseException) -> bool:
    """Whether an error is waited for as long as it takes, and not counted: its surroundings come back.

    A disk that is full or turned read-only, a mount that is away: a flow that has stopped does not go on by itself
    once there is room again. What somebody has to put right in the flow, or in permissions, is not among them.

    What comes from another process, or another language, has its number in its text alone.

    >>> waited_out(OSError(28, "No space left on device")), waited_out(PermissionError(13, "Permission denied"))
    (True, False)
    """
    if isinstance(error, TidegaugeError):
        text = str(error.evidence.get("detail", ""))
        return bool(getattr(error, "patient", False)) or _passes(text)
    return (isinstance(error, OSError) and error.errno in _PASSING) or _passes(str(error))


def _passes(text: str) -> bool:
    return any(int(number) in _PASSING for number in _NUMBER.findall(text)) or bool(_TEXT.search(text))
