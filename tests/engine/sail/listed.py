"""All that Sail is given, as expressions and as functions of a DataFrame, and the rows that they are asked of."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as sql
from tests.engine.plain import typed

from tidegauge.engine.arrowtypes import arrow_schema, spark_schema
from tidegauge.engine.plain.grammar import read
from tidegauge.engine.plain.lexer import lexemes
from tidegauge.engine.sail.frames import check_frame
from tidegauge.engine.sail.trusted import FUNCTIONS, kind_of

LISTS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tags": (
        pa.list_(pa.string()),
        [None, [], ["a"], ["b", "a", "a"], [None], ["x", None, "é"], ["", "a"], ["😀", "\uffff", "ab"]],
    ),
    "nums": (pa.list_(pa.int32()), [None, [], [3, 1, 2], [None, 5], [-1, -1], [(1 << 31) - 1, -(1 << 31)]]),
}
ARGUMENTS: dict[str, list[str]] = {
    "text": ["user", "other", "digits"],
    "whole": ["n", "big"],
    "day": ["day"],
    "instant": ["at"],
    "list": ["tags", "nums"],
    "texts": ["tags"],
    "same": ["n", "m"],
    "hashed": ["n", "user", "other", "big", "day", "flag"],
    "TEXT": ["'a'", "''", "'é'", "'ab'"],
    "WORD": ["'a'", "'ab'", "'-'"],
    "SIZE": ["0", "1", "3"],
}
SIZED = {"SHA2": ["0", "224", "256", "384", "512"]}
PAIRS = [("n", "m"), ("n", "big"), ("x", "y"), ("x", "3"), ("user", "other"), ("day", "day"), ("at", "at"),
         ("flag", "flag"), ("tiny", "n"), ("user", "'a'")]  # fmt: skip
WORDS = [
    *(f"{left} {sign} {right}" for sign in ("=", "<>", "<", "<=", ">", ">=") for left, right in PAIRS),
    "n BETWEEN 0 AND 3", "x BETWEEN 0 AND y", "user BETWEEN 'a' AND other", "n IN (1, 3, -1)",
    "user NOT IN ('a', 'é')",
    "flag AND n > 1", "flag OR n > 1", "NOT flag", "coalesce(user, other, 'z')", "coalesce(x, y)", "nvl(n, m)",
    "if(flag, n, NULL)", "CASE WHEN flag THEN x WHEN n > 1 THEN y END", "CASE n WHEN 1 THEN user ELSE other END",
    "x IS NULL", "tags IS NOT NULL", "user LIKE 'a%'", "user LIKE '_'", "other NOT LIKE '%é%'", "user LIKE 'a_b'",
    "length(soundex(user)) = n", "size(tags) > 1 AND soundex(user) <> 'A000'",
]  # fmt: skip


def rows(seed: int, count: int = 80) -> pa.RecordBatch:
    """Return rows of edge values, drawn by a seed."""
    drawn = random.Random(seed)
    batch = typed.rows(seed, count).drop_columns(["place"])
    for name, (kind, values) in LISTS.items():
        batch = batch.append_column(name, pa.array(drawn.choices(values, k=count), kind))
    return batch


ROWS = rows(11)


def frame_of(session: Any) -> Any:
    """Return the rows as they come from a task."""
    batch = ROWS

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield batch

    return session.range(0, 1, 1, 1).mapInArrow(hop, spark_schema(batch.schema))


def expressions() -> list[str]:
    """Return an expression for each function that is listed and each form of it, with several arguments."""
    made = list(WORDS)
    for name, forms in FUNCTIONS.items():
        for wanted, _ in forms:
            words = wanted.split()
            words = words if words[-1] != "..." else [*words[:-1], *words[-2:-1] * 2]
            choices = [SIZED.get(name, ARGUMENTS[word]) if word == "SIZE" else ARGUMENTS[word] for word in words]
            some = list(itertools.product(*choices))
            random.Random(name).shuffle(some)
            made += [f"{name.lower()}({', '.join(chosen)})" for chosen in some[:4]]
    return made


def values_of(session: Any) -> dict[str, list[Any]]:
    """Return the type and the values of each expression on a session in UTC and in ANSI mode."""
    found: dict[str, list[Any]] = {}
    frame = frame_of(session)
    texts = expressions()
    for start in range(0, len(texts), 20):
        some = texts[start : start + 20]
        asked = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(some)))
        kinds = arrow_schema(asked.schema, where="the frame")
        gave = asked.toArrow()
        for number, text in enumerate(some):
            found[text] = [str(kinds.field(number).type), [repr(one) for one in typed.shown(gave.column(number))]]
    return found


def trusted() -> dict[str, str]:
    """Return the type of each expression as we know it."""
    return {text: str(kind_of(read(lexemes(text))[0], ROWS.schema)) for text in expressions()}


FRAMES: dict[str, Callable[[Any], Any]] = {
    "count": lambda frame: frame.groupBy("user").count(),
    "aggregates": lambda frame: frame.groupBy("flag", "day").agg(
        sql.count("*").alias("all"),
        sql.count("n").alias("some"),
        sql.countDistinct("user").alias("users"),
        sql.min("n").alias("least"),
        sql.max("other").alias("most"),
        sql.min("at").alias("first"),
        sql.max("day").alias("last"),
        sql.sum("m").alias("m"),
        sql.sum("tiny").alias("tiny"),
    ),
    "of all": lambda frame: frame.agg(sql.max("big").alias("big"), sql.sum("small").alias("small")),
    "of none": lambda frame: frame.where("n = 12345").agg(sql.count("*").alias("all"), sql.sum("n").alias("n")),
    "where": lambda frame: frame.where((frame.n > 1) | frame.user.isNull()).select("n", "user", "x"),
    "a null": lambda frame: frame.filter("user = 'a' OR n > 2").select("user", "n"),
    "when": lambda frame: frame.select(sql.when(frame.n > 1, "many").when(frame.flag, "few").alias("much"), "n"),
    "columns": lambda frame: frame.withColumn("size", sql.size("tags"))
    .withColumnRenamed("n", "number")
    .drop("x", "y", "f")
    .select("size", "number", "user"),
    "joined": lambda frame: frame.select("n", "user").join(
        frame.groupBy("user").count().withColumnRenamed("count", "times"), "user", "left"
    ),
    "semi": lambda frame: frame.select("n", "user").join(frame.where("n = 1").select("user"), "user", "left_semi"),
    "anti": lambda frame: frame.select("n", "user").join(frame.where("n = 1").select("user"), "user", "left_anti"),
    "outer": lambda frame: frame.groupBy("n").agg(sql.max("m").alias("a")).join(
        frame.groupBy("m").agg(sql.max("n").alias("b")).withColumnRenamed("m", "n"), "n", "full"
    ),
    "union": lambda frame: frame.select("n", "user").union(frame.select("m", "other")),
    "by name": lambda frame: frame.select("n", "user").unionByName(frame.select("user", "n")),
    "star": lambda frame: frame.select("*", sql.md5("user").alias("sum")).select("sum", "tags", "money", "day"),
}  # fmt: skip


def frames_of(session: Any, *, check: bool) -> dict[str, list[str]]:
    """Return the rows of each function of a DataFrame, and look at its plan as an engine does."""
    found = {}
    for name, function in FRAMES.items():
        frame = frame_of(session)
        made = function(frame)
        if check:
            check_frame(made, frame)
        kinds = [str(field.type) for field in arrow_schema(made.schema, where="the frame")]
        gave = made.toArrow()
        columns = [[repr(one) for one in typed.shown(column)] for column in gave.columns]
        found[name] = [
            str(list(zip(made.columns, kinds, strict=True))),
            *sorted(map(str, zip(*columns, strict=True))),
        ]
    return found
