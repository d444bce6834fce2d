"""Kinds of clocks by name, one's own among them; and what is stored of a frontier when it is damaged."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.fromtime import FromTimeTaken, NotCanonical, UnknownFromTime
from tidegauge.remap.fromtime import FROM_TIMES, LSN, PARTITIONS, FromTimes, LsnTime, Sequence, decode, encode
from tidegauge.remap.fromtime.protocol import LARGEST, LONGEST_NAME, LONGEST_TEXT
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store.schema import LONGEST_NAME as LONGEST_IN_THE_STORE
from tidegauge.remap.table import LARGEST as LARGEST_IN_THE_TABLE


@dataclass(frozen=True)
class Named(Sequence):
    """A clock of any name."""

    name: Any = "mine"

    @property
    def kind(self) -> str:
        return self.name  # type: ignore[no-any-return]


def test_a_kind_of_ones_own_is_known_where_it_was_registered_and_nowhere_else() -> None:
    mine = FROM_TIMES.register(Named())
    assert mine.from_time("mine") == Named()
    assert set(mine) - set(FROM_TIMES) == {"mine"}
    with pytest.raises(UnknownFromTime, match=r"TG-0572.*'mine'.*'sequence'"):
        FROM_TIMES.from_time("mine")


def test_an_unknown_kind_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownFromTime, match="the nearest is 'partitioned'"):
        FROM_TIMES.from_time("partitionned")
    with pytest.raises(UnknownFromTime, match="Known: none"):
        FromTimes().from_time("lsn")


def test_a_kind_has_one_from_time() -> None:
    with pytest.raises(FromTimeTaken, match=r"TG-0573.*'lsn'"):
        FROM_TIMES.register(LSN)
    with pytest.raises(FromTimeTaken, match="'mine'"):
        FromTimes(Named(), Named("mine"))


@pytest.mark.parametrize("kind", ["", "Mine", "5", "a b", "a_b", "x" * 65, "mine\n", None, 5])
def test_a_kind_that_is_no_name_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidArgument, match="TG-0105"):
        FROM_TIMES.register(Named(kind))


@pytest.mark.parametrize("other", [LsnTime, "lsn", None, object()])
def test_what_is_no_from_time_is_refused(other: Any) -> None:
    with pytest.raises(InvalidArgument, match="kind, check, parse, render"):
        FROM_TIMES.register(other)


def test_the_bounds_are_those_of_the_table_and_the_store() -> None:
    assert (LARGEST, LONGEST_NAME) == (LARGEST_IN_THE_TABLE, LONGEST_IN_THE_STORE)


GOOD = '{"kind":"partitioned","next":{"a":5,"b":9007199254740993},"sealed":false}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD.replace(":5", ":5.0"), "no integer"),
        (GOOD.replace(":5", ":1e3"), "no integer"),
        (GOOD.replace(":5", ":NaN"), "no integer"),
        (GOOD.replace(":5", ":Infinity"), "no integer"),
        (GOOD.replace(":5", ':"5"'), "no integer above 0"),
        (GOOD.replace(":5", ":true"), "no integer above 0"),
        (GOOD.replace(":5", ":null"), "no integer above 0"),
        (GOOD.replace(":5", ":-5"), "no integer above 0"),
        (GOOD.replace(":5", ":0"), "no integer above 0"),
        (GOOD.replace(":5", ":" + "9" * 5000), "64 bits"),
        (GOOD.replace('"a":5', '"a":5,"a":5'), "a key twice"),
        (GOOD.replace('"a":5', '"c":5'), "canonical"),
        (GOOD.replace('"a"', '"\\u0061"'), "canonical"),
        (GOOD.replace(",", ", "), "canonical"),
        (GOOD.replace("false", "0"), 'no object of "kind"'),
        (GOOD.replace("false", "null"), 'no object of "kind"'),
        (GOOD.replace(',"sealed":false', ""), 'no object of "kind"'),
        (GOOD.replace('"next"', '"more":1,"next"'), 'no object of "kind"'),
        (GOOD.replace('"partitioned"', "5"), 'no object of "kind"'),
        ("[]", 'no object of "kind"'),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 40 + "]" * 40, "nested deeper than 32"),
        (" " * (LONGEST_TEXT + 1), "characters"),
        ("", "Expecting value"),
    ],
    ids=lambda text: text[:80].strip(),
)
def test_what_we_do_not_write_is_not_read(text: str, problem: str) -> None:
    assert decode(PARTITIONS, GOOD) == Frontier({"a": 5, "b": 2**53 + 1})
    with pytest.raises(NotCanonical, match=rf"TG-0574.*{problem}"):
        decode(PARTITIONS, text)


@pytest.mark.parametrize("text", [None, 5, GOOD.encode()])
def test_what_is_no_text_is_not_read(text: Any) -> None:
    with pytest.raises(NotCanonical, match="not a text"):
        decode(PARTITIONS, text)


def test_a_text_in_another_process_has_the_same_bytes() -> None:
    program = (
        "from tidegauge.remap.fromtime import PARTITIONS, encode\n"
        "from tidegauge.remap.frontier import Frontier\n"
        "print(ascii(encode(PARTITIONS, Frontier(dict.fromkeys({'a', 'b', 'c', 'Tür', '\\U0001f30a'}, 1)))), end='')"
    )
    here = ascii(encode(PARTITIONS, Frontier(dict.fromkeys(["\U0001f30a", "Tür", "c", "b", "a"], 1))))
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == here
