"""What a function of a DataFrame made: a plan of Spark Connect, looked at before Sail is given it.

Law: a plan that passes has on Sail the rows that it has on Spark. Its relations are on a list, and each expression in
them is trusted over the columns that the relation reads (`trusted`). SQL in it (`"amount > 3"`) is read like that of
a step. What stands before the frame that the function was given has been looked at before.

>>> from pyspark.sql.connect.proto import Expression
>>> text = Expression.ExpressionString(expression="size(tags) > 3")
>>> sentence_of(Expression(expression_string=text))
Applied(operator='>', parts=(Applied(operator='SIZE', parts=(Reference(path=('tags',)),)), Said('number', '3')))
>>> sentence_of(Expression(expression_string=Expression.ExpressionString(expression="tags[3] = 'x'")))
Traceback (most recent call last):
tidegauge.engine.sail.trusted.Untrusted: "tags[3] = 'x'" is not in the part of SQL that Tidegauge reads
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from tidegauge.engine.arrowtypes import arrow_schema
from tidegauge.engine.plain.expressions import NotUnderstood
from tidegauge.engine.plain.grammar import Applied, Reference, Said, Sentence, read
from tidegauge.engine.plain.lexer import lexemes
from tidegauge.engine.sail.trusted import Untrusted, aggregate_of, carriable, comparable, kind_of
from tidegauge.errors.engine import NoSparkType

__all__ = ["check_frame", "sentence_of"]

_OPERATORS: Final[Mapping[str, str]] = MappingProxyType(
    {"isnull": "IS NULL", "and": "AND", "or": "OR", "not": "NOT", "in": "IN", "like": "LIKE", "when": "CASE"}
)
_JOINS: Final = frozenset(
    f"JOIN_TYPE_{name}" for name in ("INNER", "LEFT_OUTER", "RIGHT_OUTER", "FULL_OUTER", "LEFT_SEMI", "LEFT_ANTI")
)


def check_frame(made: Any, given: Any) -> None:
    """Raise `Untrusted` unless all that was made of a frame may go to Sail."""
    client = made.sparkSession.client
    plan = made._plan.to_proto(client)  # noqa: SLF001 - PySpark has no other way to a frame's plan
    before = given._plan._plan_id  # noqa: SLF001

    def columns(relation: Any) -> pa.Schema:
        part = type(plan)()
        part.root.CopyFrom(relation)
        try:
            found = arrow_schema(client.schema(part), where="the frame")
        except NoSparkType as error:
            raise Untrusted(error.summary) from error
        if odd := [field for field in found if not carriable(field.type)]:
            raise Untrusted(f"the column {odd[0].name!r} of {odd[0].type}")
        return found

    _check(plan.root, before, columns)
    columns(plan.root)


def _check(relation: Any, before: int, columns: Callable[[Any], pa.Schema]) -> None:
    """Look at a relation and at what it is made of, up to the one that is known."""
    if relation.common.plan_id == before:
        return
    kind = relation.WhichOneof("rel_type")
    part = getattr(relation, kind)
    match kind:
        case "local_relation":
            return
        case "join":
            _check(part.left, before, columns)
            _check(part.right, before, columns)
            _check_join(part, columns)
            return
        case "set_op":
            _check(part.left_input, before, columns)
            _check(part.right_input, before, columns)
            if part.set_op_type != part.SET_OP_TYPE_UNION or not part.is_all or part.allow_missing_columns:
                raise Untrusted("a set operation other than union")
            left, right = columns(part.left_input), columns(part.right_input)
            if not part.by_name and left.types != right.types:
                raise Untrusted("a union of columns of several types")
            if part.by_name and {f.name: f.type for f in left} != {f.name: f.type for f in right}:
                raise Untrusted("a union of columns of several types")
            return
        case "project" | "filter" | "aggregate" | "with_columns" | "with_columns_renamed" | "drop" | "to_df":
            _check(part.input, before, columns)
        case "subquery_alias":
            _check(part.input, before, columns)
            return
        case _:
            raise Untrusted(f"its plan has a {kind}")
    schema = columns(part.input)
    if kind == "project":
        _check_values(part.expressions, schema)
    elif kind == "with_columns":
        _check_values([alias.expr for alias in part.aliases], schema)
    elif kind == "filter":
        kind_of(sentence_of(part.condition), schema)
    elif kind == "aggregate":
        _check_aggregate(part, schema)
    elif kind == "drop" and any(one.WhichOneof("expr_type") != "unresolved_attribute" for one in part.columns):
        raise Untrusted("it drops what is no column")


def _check_values(expressions: Iterable[Any], schema: pa.Schema) -> None:
    for expression in expressions:
        if expression.WhichOneof("expr_type") == "unresolved_star":
            if expression.unresolved_star.unparsed_target:
                raise Untrusted("a star of some columns")
        else:
            kind_of(sentence_of(expression), schema)


def _check_join(join: Any, columns: Callable[[Any], pa.Schema]) -> None:
    if join.JoinType.Name(join.join_type) not in _JOINS:
        raise Untrusted("a join of another kind than inner, outer, semi and anti")
    left, right = columns(join.left), columns(join.right)
    if not join.using_columns:
        raise Untrusted("a join on a condition (join on the names of columns)")
    for name in join.using_columns:
        sides = [kind_of(Reference((name,)), side) for side in (left, right)]
        if not sides[0].equals(sides[1]) or not comparable(sides[0]):
            raise Untrusted(f"a join by {name!r}, which is {sides[0]} and {sides[1]}")


def _check_aggregate(part: Any, schema: pa.Schema) -> None:
    if part.group_type != part.GROUP_TYPE_GROUPBY:
        raise Untrusted("a rollup, cube or pivot")
    for expression in part.grouping_expressions:
        if not comparable(kind := kind_of(sentence_of(expression), schema)):
            raise Untrusted(f"groups by a column of {kind}")
    for expression in part.aggregate_expressions:
        inner = expression.alias.expr if expression.WhichOneof("expr_type") == "alias" else expression
        if inner.WhichOneof("expr_type") == "unresolved_function":
            called = inner.unresolved_function
            word, parts = called.function_name.upper(), [_argument(one) for one in called.arguments]
            if called.is_user_defined_function or (called.is_distinct and word != "COUNT"):
                raise Untrusted(f"the aggregate {word.lower()}")
        else:
            sentence = sentence_of(inner)
            if not isinstance(sentence, Applied):
                continue  # a column that it groups by
            word, parts = sentence.operator, list(sentence.parts)
        if word == "COUNT" and any(not comparable(kind_of(one, schema)) for one in parts):
            raise Untrusted("count of a column that cannot be compared")
        aggregate_of(word, parts, schema)


def _argument(expression: Any) -> Sentence:
    """Return what an aggregate is of. `count(*)` counts ones."""
    star = expression.WhichOneof("expr_type") == "unresolved_star"
    return Said("number", "1") if star else sentence_of(expression)


def sentence_of(expression: Any) -> Sentence:
    """Return what an expression of a plan says. Raises `Untrusted`."""
    kind = expression.WhichOneof("expr_type")
    match kind:
        case "literal":
            return _literal(expression.literal)
        case "unresolved_attribute":
            return _read(expression.unresolved_attribute.unparsed_identifier)
        case "expression_string":
            return _read(expression.expression_string.expression)
        case "alias" if len(expression.alias.name) == 1:
            return sentence_of(expression.alias.expr)
        case "unresolved_function":
            called = expression.unresolved_function
            if called.is_distinct or called.is_user_defined_function:
                raise Untrusted(f"the function {called.function_name}")
            parts = tuple(map(sentence_of, called.arguments))
            name = called.function_name.lower()
            if name == "isnotnull":
                return Applied("NOT", (Applied("IS NULL", parts),))
            if name == "when" and len(parts) % 2 == 0:
                parts = (*parts, Said("NULL", "NULL"))
            return Applied(_OPERATORS.get(name, name.upper()), parts)
    raise Untrusted(f"its plan has a {kind}")


def _literal(literal: Any) -> Sentence:
    kind = literal.WhichOneof("literal_type")
    value = getattr(literal, kind)
    if kind == "integer" or (kind == "long" and abs(value) >= 1 << 31):
        return Said("number", str(value))
    if kind == "string":
        return Said("text", value)
    if kind == "boolean":
        return Said(str(value).upper(), str(value))
    if kind == "null":
        return Said("NULL", "NULL")
    raise Untrusted(f"a literal of type {kind}")


def _read(text: str) -> Sentence:
    try:
        sentence, _ = read(lexemes(text))
    except NotUnderstood:
        raise Untrusted(f"{text!r} is not in the part of SQL that Tidegauge reads") from None
    return sentence
