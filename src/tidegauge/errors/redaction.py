"""Redaction: what others say in their exceptions is shown and stored without the secrets that we know of.

Invariant: no text that has passed holds a known secret, plain or percent-encoded, nor a password that a URL or a
setting within the text gives away. An error with nothing to hide passes as the same object.

>>> hide = Redaction(["p@ss"])
>>> hide.text("cannot reach db with p@ss, nor postgresql://ada:p%40ss@db/shop")
'cannot reach db with ***, nor postgresql://ada:***@db/shop'
>>> hide.text("password='hunter2' token: hunter2 secret=hunter2")
"password='***' token: *** secret=***"
>>> from tidegauge.errors.base import Unexpected
>>> print(hide.error(Unexpected(message="ValueError: p@ss")).summary)
ValueError: ***
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar
from urllib.parse import quote

from tidegauge.errors.base import TidegaugeError, Unexpected, brief

__all__ = ["Redaction"]

_IN_URL: Final = re.compile(r"(://[^\s:/@]*:)[^\s/]+@")
_IN_SETTING: Final = re.compile(
    r"""(?i)((?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key)\w*["']?\s*[=:]\s*["']?)[^\s"',;&]+"""
)

_E = TypeVar("_E", bound=BaseException)


class Redaction:
    """Replaces secrets by `***`. Without known ones, what URLs and settings give away is replaced all the same."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {form for one in secrets if one for form in (one, quote(one, safe=""), repr(one)[1:-1])}
        longest_first = sorted(known, key=lambda form: (-len(form), form))
        self._known: Final = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if not text:
            return text
        plain = text if self._known is None else self._known.sub("***", text)
        return _IN_SETTING.sub(r"\1***", _IN_URL.sub(r"\1***@", plain))

    def data(self, value: Any) -> Any:
        """Return JSON data with every text in it redacted."""
        if isinstance(value, dict):
            return {key: self.data(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.data(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def error(self, error: _E) -> _E | TidegaugeError:
        """Return the error, or one of the same code that quotes no secret, and has no cause that would.

        One that is not ours, and quotes a secret, becomes `Unexpected`.
        """
        if any(self.text(said := str(link)) != said for link in _chain(error)):
            if not isinstance(error, TidegaugeError):
                return Unexpected(message=self.text(brief(error)))
            encoded = error.encode()
            return TidegaugeError.decode({**encoded, "evidence": self.data(encoded["evidence"])})
        return error


def _chain(error: BaseException | None) -> Iterable[BaseException]:
    """Yield an error and all those that a traceback shows with it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
