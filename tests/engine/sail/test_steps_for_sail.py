"""Which steps stay here, which go to Sail, and what is said of those that do not go anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from tests.engine.clusters import ROOT

from tidegauge.engine.plain.grammar import read
from tidegauge.engine.plain.lexer import lexemes
from tidegauge.engine.sail.steps import for_sail
from tidegauge.engine.sail.trusted import FUNCTIONS, Untrusted, kind_of
from tidegauge.errors.flow import ReservedColumn, UnknownColumn
from tidegauge.errors.sail import NotOnSail
from tidegauge.errors.steps import NoOrderOfRows
from tidegauge.job.plan import Changelog, Dedupe, Filter, Partition, Select, Step, Transform

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("amount", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64())])),
        ("price", pa.decimal128(10, 2)),
    ]
)


def made(*steps: Step, schema: pa.Schema = COLUMNS) -> tuple[list[str], list[str]]:
    """Return the steps by what they are, those for Sail as they are written, and the columns at the end."""
    found, columns = for_sail(steps, schema, output="it", framed=None)
    written = [
        step.condition
        if isinstance(step, Filter)
        else ", ".join(step.expressions)
        if isinstance(step, Select)
        else type(step).__name__
        for step in found
    ]
    return written, [f"{field.name} {field.type}" for field in columns]


def test_plain_sql_does_not_go_there() -> None:
    assert made(Filter("amount > 3"), Select(("id + 1 AS next", "upper(user) AS user"))) == (
        ["MapBatches", "MapBatches"][:1],
        ["next int64", "user string"],
    )


def test_of_a_select_what_is_not_plain_goes_there_alone() -> None:
    written, columns = made(Select(("id + 1 AS tags", "size(tags) AS n", "place.lat")))
    assert written == ["`id`, `user`, `amount`, `tags`, `place`, `price`, size(tags) AS `sail_0`", "MapBatches"]
    assert columns == ["tags int64", "n int32", "lat double"]


def test_a_name_of_the_users_is_no_obstacle() -> None:
    schema = pa.schema([("sail_0", pa.string()), ("SAIL_1", pa.string())])
    written, columns = made(Select(("*", "md5(sail_0) AS a", "md5(sail_0) AS b")), schema=schema)
    assert written[0] == "`sail_0`, `SAIL_1`, md5(sail_0) AS `sail_2`, md5(sail_0) AS `sail_3`"
    assert columns == ["sail_0 string", "SAIL_1 string", "a string", "b string"]


def test_steps_of_all_kinds_follow_one_another() -> None:
    written, columns = made(
        Filter("amount > 3"),
        Dedupe(("id",)),
        Filter("size(tags) > 1"),
        Partition(2, ("id",), 1),
        Select(("md5(user) AS m",)),
        Filter("m > 'a'"),
    )
    assert [word.split(",")[0] for word in written] == [
        "MapBatches", "Dedupe", "size(tags) > 1", "Partition", "`id`", "MapBatches", "MapBatches"
    ]  # fmt: skip
    assert columns == ["m string"]


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ([Filter("size(tags) + 1 > 2")], "'+' is not on the list"),
        ([Filter("size(tags)")], "it is no condition"),
        ([Filter("md5(usr) = 'x'")], "there is no one column 'usr'"),
        ([Select(("size(tags)",))], "'size(tags)' has no name"),
        ([Select(("array_contains(tags, 'a') AS it",))], "array_contains() is not on the list"),
        ([Select(("coalesce(place.lat, size(tags)) AS it",))], "a field of a struct"),
        ([Filter("size(tags) > 1 AND place IS NULL")], "whether a struct is null"),
        ([Filter("md5(user) > 'a' AND price > price")], "a comparison of decimal128(10, 2)"),
        ([Filter("size(tags) > 1.5")], "a literal with a decimal point"),
        ([Filter("size(tags) > '1'")], "of values of several types"),
        ([Select(("size(tags) AS n", "100 / id AS share")), Filter("n > 1")], "which has to be in the last step"),
        ([Select(("100 / id AS share", "tags")), Filter("size(tags) > 1")], "which has to be in the last step"),
    ],
)
def test_what_is_refused_is_named(steps: Sequence[Step], what: str) -> None:
    with pytest.raises(NotOnSail) as caught:
        for_sail(steps, COLUMNS, output="it", framed=None)
    assert what in str(caught.value)


def test_columns_that_do_not_come_back_as_they_went_are_refused() -> None:
    schema = COLUMNS.append(pa.field("took", pa.duration("us")))
    with pytest.raises(NotOnSail, match="the column 'took' of duration"):
        for_sail([Filter("size(tags) > 1")], schema, output="it", framed=None)


def test_rows_with_operations_are_refused_until_they_are_plain_data() -> None:
    schema = COLUMNS.append(pa.field("_op", pa.string()))
    with pytest.raises(NotOnSail, match="rows with operations"):
        for_sail([Filter("size(tags) > 1")], schema, output="it", framed=None)
    written, columns = made(Changelog("op"), Filter("size(tags) > 1"), schema=schema)
    assert written == ["MapBatches", "size(tags) > 1"]
    assert columns[-1] == "op string"


@pytest.mark.parametrize(
    "before", [Filter("size(tags) > 1"), Select(("id", "size(tags) AS n")), Transform(lambda frame: frame)]
)
def test_rows_that_sail_gives_have_no_first(before: Step) -> None:
    with pytest.raises(NoOrderOfRows, match=r"dedupe\('id'\).* in no order") as caught:
        for_sail([before, Partition(2, ("id",), 1), Dedupe(("id",))], COLUMNS, output="it", framed=None)
    assert "runs on Sail, which keeps no order of rows" in str(caught.value)


def test_a_struct_in_a_struct_is_refused_and_one_in_a_list_or_without_another_is_not() -> None:
    """Of 69 rows that a filter was to keep beside such a column Sail kept 4, and said nothing."""
    inner = pa.struct([("n", pa.int64())])
    tags = pa.field("tags", pa.list_(pa.string()))
    for kind in (inner, pa.struct([("ns", pa.list_(pa.int64()))]), pa.list_(inner)):
        for_sail([Filter("size(tags) > 1")], pa.schema([tags, ("it", kind)]), output="x", framed=None)
    for kind in (pa.struct([("deep", inner)]), pa.list_(pa.struct([("deep", inner)]))):
        with pytest.raises(NotOnSail, match="'it'"):
            for_sail([Filter("size(tags) > 1")], pa.schema([tags, ("it", kind)]), output="x", framed=None)


def test_names_are_looked_at() -> None:
    with pytest.raises(ReservedColumn):
        for_sail([Select(("size(tags) AS _epoch",))], COLUMNS, output="it", framed=None)
    with pytest.raises(UnknownColumn):  # the name of a column of ours is none of the user's
        for_sail([Select(("size(tags) AS n", "sail_0 AS x"))], COLUMNS, output="it", framed=None)


@pytest.mark.parametrize(
    "text",
    [
        "left(user, -1)", "left(user, id)", "split(user, '[a]')", "replace(user, '', 'x')", "greatest(user, id)",
        "initcap(user)", "id - 1", "-id", "id / 2", "amount * 2", "CAST(id AS string)", "amount = id", "NULL",
        "if(true, NULL, NULL)", "sum(id)", "count(id)", "price = price", "tags = tags",
    ],
)  # fmt: skip
def test_what_was_not_measured_is_not_trusted(text: str) -> None:
    sentence, _ = read(lexemes(text))
    with pytest.raises(Untrusted):
        kind_of(sentence, COLUMNS)


def test_every_function_is_on_the_page() -> None:
    page = (ROOT / "docs" / "how-to" / "run-without-java-on-sail.md").read_text()
    assert [name for name in FUNCTIONS if f"`{name.lower()}`" not in page] == []
