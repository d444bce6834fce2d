"""The lexemes of a text of SQL, as far as it is understood.

Invariant: a lexeme is what Spark's lexer takes at that place. Where it would take anything else, or what a setting of
the session changes, the lexemes end without an end.

>>> [kind for kind, _text, _end in lexemes("amount > 900 AND `a b` LIKE 'x%'")]
['word', '>', 'number', 'AND', 'name', 'LIKE', 'text', 'end']
>>> [kind for kind, _text, _end in lexemes("amount ^ 2")]
['word', '']
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

__all__ = ["Lexeme", "lexemes"]

Lexeme: TypeAlias = tuple[str, str, int]
"""Its kind, which for a keyword or a sign is that itself; its text; where it ends. A name is a word in backticks."""

# As Spark's lexer takes them, the longest first; a text that it would take otherwise matches nothing here, and so do
# comments.
_LEXICAL: Final = re.compile(
    r"""[ \t\r\n]*+(?:
      (?P<word>[A-Za-z_][A-Za-z0-9_]*+(?![^\x00-\x7f]))
    | `(?P<name>[^`]+)`
    | '(?P<text>[^'\\\ud800-\udfff]*+)'
    | (?P<number>[0-9]++(?:\.[0-9]++)?+(?![A-Za-z0-9_.]))
    | (?P<sign><>|!=|==|<=(?!>)|>=|-(?![->])|\|\|(?!>)|/(?!\*)|\.(?![0-9])|[=<>(),*+%])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset({"AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"})
_VALUES: Final = frozenset({"CURRENT_PATH"})
"""Of all of Spark's keywords, what it takes for a value of its own even where a column has the name."""


def lexemes(sql: str) -> list[Lexeme]:
    """Return the lexemes of a text up to the first that is not known.

    The last one has the kind "end", or "" where there is no going on.
    """
    known: list[Lexeme] = []
    at = 0
    while not known or known[-1][0] not in {"end", ""}:
        found = _LEXICAL.match(sql, at)
        if found is None or found.lastgroup is None:
            return [*known, ("", "", at)]
        kind, text, at = found.lastgroup, found[found.lastgroup], found.end()
        if kind == "word" and text.upper() in _VALUES:
            return [*known, ("", "", at)]
        if kind == "word" and text.upper() in _KEYWORDS:
            kind = text.upper()
        elif kind == "sign":
            kind = text
        known.append((kind, text, at))
    return known
