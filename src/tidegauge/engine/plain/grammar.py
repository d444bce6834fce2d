"""The grammar of expressions, as far as we understand it: what a text says, before anybody asks for its meaning.

Invariant: an understood text is read as Spark's parser reads it. The precedence is that of Spark's grammar, where
`NOT a = 1 AND b` is `(NOT (a = 1)) AND b`, the `AND` of a `BETWEEN` is its own, a comparison is a value like any
other, and `-3` is a literal. Nothing of a text is evaluated, whatever it says.

>>> from tidegauge.engine.plain.lexer import lexemes
>>> reader = Reader(lexemes("amount * 1.2 > 900 AS large"))
>>> reader.expression()  # doctest: +NORMALIZE_WHITESPACE
Applied(operator='>', parts=(Applied(operator='*', parts=(Reference(path=('amount',)), Said('number', '1.2'))),
                             Said('number', '900')))
>>> reader.alias()
'large'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegauge.engine.plain.expressions import NotUnderstood
from tidegauge.engine.plain.lexer import Lexeme

__all__ = ["Applied", "Reader", "Reference", "Said", "Sentence", "read"]

_DEEPEST: Final = 40
_COMPARISONS: Final = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
_SUMS: Final = ("+", "-", "||")
_PRODUCTS: Final = ("*", "/", "%")
_BEGUN: Final = frozenset({"CASE", "CAST", "TRY_CAST"})
_WITHIN: Final = frozenset({"WHEN", "THEN", "ELSE", "END"})
_TIMES: Final = frozenset({"DATE", "TIMESTAMP"})


@dataclass(frozen=True, slots=True)
class Reference:
    """A column, or a field within one."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Said:
    """A literal: its kind is "number", "text", "TRUE", "FALSE", "NULL" or "date"."""

    kind: str
    text: str

    def __repr__(self) -> str:
        return f"Said({self.kind!r}, {self.text!r})"


@dataclass(frozen=True, slots=True)
class Applied:
    """An operator or a function, in capitals, and what it is applied to.

    Of `CASE` the parts are conditions and values in turns, and the value of `ELSE`. The type of a `CAST` is a
    `Reference`.
    """

    operator: str
    parts: tuple[Sentence, ...]


Sentence: TypeAlias = Reference | Said | Applied


def read(tokens: Sequence[Lexeme]) -> tuple[Sentence, str | None]:
    """Return what an expression says and the name that it gives itself, if any. Raises `NotUnderstood`.

    >>> from tidegauge.engine.plain.lexer import lexemes
    >>> read(lexemes("a.b AS c"))
    (Reference(path=('a', 'b')), 'c')
    """
    reader = Reader(tokens)
    made = reader.expression()
    name = reader.alias()
    reader.take("end")
    return made, name


class Reader:
    """Reads lexemes by recursive descent, one method for each level of precedence. Raises `NotUnderstood`."""

    def __init__(self, tokens: Sequence[Lexeme]) -> None:
        self._tokens: Final = tokens
        self._next = 0
        self._depth = 0
        self._cases = 0

    def take(self, kind: str) -> Lexeme:
        """Return the next token, which has to be of this kind."""
        token = self._tokens[self._next]
        if token[0] != kind:
            raise NotUnderstood
        self._next += 1
        return token

    def expression(self) -> Sentence:
        """Return the expression up to an alias, or to the end of one that encloses it."""
        return self._deeper(self._disjunction)

    def conjunct(self) -> Sentence:
        """Return an expression without `AND` and `OR` outside of parentheses."""
        if self._took("NOT"):
            return Applied("NOT", (self._deeper(self.conjunct),))
        return self._predicate()

    def alias(self) -> str | None:
        """Return the name after an `AS`, if there is one."""
        if not self._took_word("AS"):
            return None
        kind = self._tokens[self._next][0]
        return self.take(kind if kind in {"word", "name"} else "word")[1]

    def _disjunction(self) -> Sentence:
        parts = [self._conjunction()]
        while self._took("OR"):
            parts.append(self._conjunction())
        return Applied("OR", tuple(parts)) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> Sentence:
        parts = [self.conjunct()]
        while self._took("AND"):
            parts.append(self.conjunct())
        return Applied("AND", tuple(parts)) if len(parts) > 1 else parts[0]

    def _predicate(self) -> Sentence:
        value = self._value()
        if self._took("IS"):
            negated = self._took("NOT")
            self.take("NULL")
            made = Applied("IS NULL", (value,))
            return Applied("NOT", (made,)) if negated else made
        negated = self._took("NOT")
        if self._took("BETWEEN"):
            low = self._value()
            self.take("AND")
            made = Applied("BETWEEN", (value, low, self._value()))
        elif self._took("IN"):
            made = Applied("IN", (value, *self._list()))
        elif self._took("LIKE"):
            made = Applied("LIKE", (value, Said("text", self.take("text")[1])))
        elif negated:
            raise NotUnderstood
        else:
            return value
        return Applied("NOT", (made,)) if negated else made

    def _value(self) -> Sentence:
        return self._joined(_COMPARISONS, lambda: self._joined(_SUMS, lambda: self._joined(_PRODUCTS, self._signed)))

    def _joined(self, signs: Sequence[str], inner: Callable[[], Sentence]) -> Sentence:
        """Return what signs of one level join, from left to right."""
        made = inner()
        for _ in range(_DEEPEST):
            if (kind := self._tokens[self._next][0]) not in signs:
                return made
            self._next += 1
            made = Applied(kind, (made, inner()))
        raise NotUnderstood

    def _signed(self) -> Sentence:
        if self._took("-"):
            if self._tokens[self._next][0] == "number":
                return Said("number", "-" + self.take("number")[1])
            return Applied("NEGATIVE", (self._deeper(self._signed),))
        return self._primary()

    def _primary(self) -> Sentence:
        kind, text, _ = self._tokens[self._next]
        if kind in {"number", "text", "TRUE", "FALSE", "NULL"}:
            self._next += 1
            return Said(kind, text)
        if self._took("("):
            inner = self.expression()
            self.take(")")
            return inner
        if kind == "word":
            word, (after, _, _) = text.upper(), self._tokens[self._next + 1]
            if word in _BEGUN:
                self._next += 1
                return self._case() if word == "CASE" else self._cast(word)
            if word in _WITHIN and self._cases:
                raise NotUnderstood
            if after == "(":
                self._next += 1
                return Applied(word, self._list())
            if after == "text" and word in _TIMES:
                self._next += 2
                return Said(word.lower(), self._tokens[self._next - 1][1])
        return self._path()

    def _path(self) -> Reference:
        path: list[str] = []
        while not path or self._took("."):
            kind = self._tokens[self._next][0]
            path.append(self.take(kind if kind in {"word", "name"} else "word")[1])
        if self._tokens[self._next][0] == "(":  # a function of a catalog
            raise NotUnderstood
        return Reference(tuple(path))

    def _case(self) -> Sentence:
        self._cases += 1
        parts: list[Sentence] = []
        subject = None if self._took_word("WHEN") else self.expression()
        if subject is not None:
            self._word("WHEN")
        while not parts or self._took_word("WHEN"):
            condition = self.expression()
            self._word("THEN")
            parts += [condition if subject is None else Applied("SUBJECT =", (subject, condition)), self.expression()]
        parts.append(self.expression() if self._took_word("ELSE") else Said("NULL", "NULL"))
        self._word("END")
        self._cases -= 1
        return Applied("CASE", tuple(parts))

    def _cast(self, word: str) -> Sentence:
        self.take("(")
        value = self.expression()
        self._word("AS")
        kind = Reference((self.take("word")[1].upper(),))
        self.take(")")
        return Applied(word, (value, kind))

    def _list(self) -> tuple[Sentence, ...]:
        self.take("(")
        parts = [self.expression()]
        while self._took(","):
            parts.append(self.expression())
        self.take(")")
        return tuple(parts)

    def _deeper(self, inner: Callable[[], Sentence]) -> Sentence:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotUnderstood
        made = inner()
        self._depth -= 1
        return made

    def _took(self, kind: str) -> bool:
        if self._tokens[self._next][0] != kind:
            return False
        self._next += 1
        return True

    def _took_word(self, word: str) -> bool:
        kind, text, _ = self._tokens[self._next]
        if kind != "word" or text.upper() != word:
            return False
        self._next += 1
        return True

    def _word(self, word: str) -> None:
        if not self._took_word(word):
            raise NotUnderstood
