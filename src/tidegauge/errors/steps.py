"""TG-0670 and on: steps that unnest, deduplicate and part rows.

>>> print(NotAList(column="items", where="unnest of output 'lines'", type="string"))
TG-0670: unnest of output 'lines' takes the lists in 'items' apart, which is a column of string
  likely cause: another column was meant, or the lists are still text
  what to do:   name a column of lists, or make one in a step before: from_json(items, 'array<string>') AS items
"""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = ["KeyCannotTell", "NoOrderOfRows", "NotAList", "NotAPart", "OperationsInStep", "ValueNotInColumn"]


class NotAList(TidegaugeError):
    """A column to unnest that has no lists."""

    code = "TG-0670"
    what = "{where} takes the lists in {column!r} apart, which is a column of {type}"
    cause = "another column was meant, or the lists are still text"
    remedy = "name a column of lists, or make one in a step before: from_json({column}, 'array<string>') AS {column}"


class OperationsInStep(TidegaugeError):
    """Rows with operations, for a step that would give another table than they make."""

    code = "TG-0671"
    what = "{where} gets rows with operations in the column '_op'"
    cause = "{why}"
    remedy = "{instead}; or make plain data of them in a step before: changelog('op')"


class KeyCannotTell(TidegaugeError):
    """A key column whose values cannot be told apart for certain."""

    code = "TG-0672"
    what = "{where} has the key {column!r}, a column of {type}"
    cause = "a key is of integers, texts, bytes, booleans, dates, instants or decimals; {why}"
    remedy = "name another column, or make one in a step before, such as CAST({column} AS STRING) AS {column}"


class ValueNotInColumn(TidegaugeError):
    """A value that no row of its column can have."""

    code = "TG-0673"
    what = "{where} asks for the value {value!r}, which {column!r}, a column of {type}, cannot have"
    cause = "the value has another type than the column, or is out of its range"
    remedy = "give values of the column's type"


class NoOrderOfRows(TidegaugeError):
    """Rows to deduplicate, without an order that says which is the first."""

    code = "TG-0674"
    what = "output {output!r} keeps the first row of each key ({step}), and its rows are in no order there"
    cause = "{why}"
    remedy = "{instead}"


class NotAPart(TidegaugeError):
    """A part that a stream was not split into."""

    code = "TG-0675"
    what = "the stream was not split by the value {value!r} of {column!r}. It has: {known}"
    cause = "a misspelt value; rows of values that are not listed are in `rest`"
    remedy = "use one of these, or name the value in split_by"
