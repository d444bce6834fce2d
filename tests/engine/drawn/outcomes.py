"""What comes of a described flow on an engine, as data that can be sent; and which outcomes agree."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from tests.engine.drawn.described import Described, Output, flow_of

import tidegauge as tg

SQL: Final = frozenset({"filter", "select"})
MAY_REFUSE: Final = {"local": {"TG-0106"}, "sail": {"TG-0691", "TG-0674"}}
"""By engine, the codes by which it refuses what Spark runs."""


@dataclass(frozen=True)
class Outcome:
    """Of each output one of: the code by which it was refused before anything was there; or its columns, its rows as
    text, and the code and the epoch it failed with, if it did.
    """

    refused: dict[str, str]
    columns: dict[str, list[str]]
    rows: dict[str, list[str]]
    failed: dict[str, list[Any]]


def outcome(described: Described, files: Path, root: Path, engine: Any) -> Outcome:
    """Run a flow on an engine, without the outputs that it refuses. Raises what is no error of an output."""
    names, refused = described.names, dict[str, str]()
    while names:
        root.mkdir(parents=True)
        flow = flow_of(described, files, root, names)
        try:
            flow.run("caught-up", engine=engine)
        except tg.TidegaugeError as error:
            if (root / "flow.db").exists():
                break  # it ran
            named = re.search(r"output '(o\d+)'", str(error))
            if named is None or os.listdir(root):
                raise
            refused[named[1]] = error.code
            names.remove(named[1])
            shutil.rmtree(root)
            continue
        break
    else:
        return Outcome(refused, {}, {}, {})
    columns, rows, failed = {}, {}, {}
    for output in tg.status(flow).outputs:
        if output.error is not None:
            failed[output.name] = [output.error.code, output.upper]
        if not output.upper:
            continue  # it failed at its first epoch, so there is no table
        table = tg.read_arrow(flow, output.name)
        columns[output.name] = str(table.schema.remove_metadata()).splitlines()
        rows[output.name] = lines(table)
    return Outcome(refused, columns, rows, failed)


def lines(table: pa.Table) -> list[str]:
    """Return the rows as text, sorted. Days and instants are numbers: Python knows fewer of them."""
    shown = [_numbers(table.column(name)).to_pylist() for name in table.column_names]
    return sorted(repr(row) for row in zip(*shown, strict=True))


def _numbers(column: Any) -> Any:
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def by_spark(described: Described, local: Outcome) -> tuple[Described, dict[str, str]]:
    """Add a twin to each output whose SQL ran without Spark, which runs there; return the outputs by their twins."""
    twins: dict[str, str] = {}
    outputs = list(described.outputs)
    for name, output in zip(described.names, described.outputs, strict=True):
        words = {word for word, *_ in output.steps}
        if words & SQL and name not in local.refused:
            twins[f"o{len(outputs)}"] = name
            outputs.append(Output(output.source, (("transform", "as_it_is"), *output.steps), output.sink))
    return replace(described, outputs=tuple(outputs)), twins


def differences(
    spark: Outcome, other: Outcome, engine: str, *, twins: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Say in what an outcome differs from that on Spark, other than by what the engine may refuse. Twins on Spark are
    held against the outputs that they are of.
    """
    found = []
    for name in sorted({*spark.refused, *spark.columns, *spark.failed}):
        mine, code = twins.get(name, name), spark.refused.get(name)
        if other.refused.get(mine, code) != code and other.refused[mine] in MAY_REFUSE[engine]:
            continue
        for what in ("refused", "failed", "columns", "rows"):
            theirs, ours = getattr(spark, what).get(name), getattr(other, what).get(mine)
            if theirs != ours:
                where = "Spark" if mine == name else "Spark itself"
                found.append(f"{what} of {mine}: {json.dumps(theirs)} on {where}, {json.dumps(ours)} on {engine}")
    return found
