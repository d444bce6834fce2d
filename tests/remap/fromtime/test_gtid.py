"""GTID sets: what MySQL prints, what no frontier can say, and what a binlog does to a frontier."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.dataflow import MutableAntichain
from tidegauge.dataflow.order import FIRST, LAST, PARTITIONED, Interval, after, before, only
from tidegauge.errors.fromtime import GtidWentBack, InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime import GTID, PARTITIONS
from tidegauge.remap.frontier import ORIGIN, Frontier

TEA, SALT = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f22fa47-71ca-11e1-9e33-c80aa9429562"


def toy(number: int) -> str:
    """The UUID that stands for an id of the reference's vectors."""
    return str(UUID(int=number))


def test_t19_a_set_is_how_far_each_server_came_and_all_others_are_absent() -> None:
    found = GTID.parse(f"{toy(14)}:1, {toy(21)}:1-3, {toy(62)}:1-19")
    assert found == Frontier({toy(14): 2, toy(21): 4, toy(62): 20})
    numbered = PARTITIONED.frontier({UUID(uuid).int: position for uuid, position in found.items()})
    assert numbered == (
        (Interval(FIRST, before(14)), 0),
        (only(14), 2),
        (Interval(after(14), before(21)), 0),
        (only(21), 4),
        (Interval(after(21), before(62)), 0),
        (only(62), 20),
        (Interval(after(62), LAST), 0),
    )


def test_t19_nothing_is_every_server_absent() -> None:
    assert [GTID.parse(text) for text in ("", " ", "\n")] == [ORIGIN] * 3
    assert GTID.render(ORIGIN) == ""


@pytest.mark.parametrize("ids", [(toy(14), toy(21)), (TEA, SALT)], ids=["toy", "real"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{1}:1-3,{0}:1", "not in order"),
        ("{0}:1-3,{0}:1-5", "there twice"),
        ("{0}:1-3:5-7", "more than one interval"),
        ("{0}:1-3:4", "more than one interval"),
        ("{0}:1-3,{1}:1-2:4", "more than one interval"),
        ("{0}:2-3", "before 2 are missing"),
        ("{0}:5", "before 5 are missing"),
        ("{0}:3-1", "ends before it begins"),
        ("{0}:tag:1-3", "tagged transactions are not supported"),
        ("{0}:1-3:tag_2:1", "tagged transactions are not supported"),
        ("{0}", "an interval N or N-M"),
        ("{0}:", "an interval N or N-M"),
        ("{0}:1-", "an interval N or N-M"),
        ("{0}:-3", "an interval N or N-M"),
        ("{0}:0-3", "an interval N or N-M"),
        ("{0}:01-3", "an interval N or N-M"),
        ("{0}:1-3.0", "an interval N or N-M"),
        ("{0}:1-1e3", "an interval N or N-M"),
        ("{0}:1 -3", "an interval N or N-M"),
        ("{0}:1-99999999999999999999", "an interval N or N-M"),
        ("{0}:1-9223372036854775807", r"below 2\*\*63 - 1"),
        ("{0}:1-3,", "UUID:1-N is expected"),
        (",{0}:1-3", "UUID:1-N is expected"),
        ("{0}:1-3;{1}:1", "more than one interval"),
        ("x{0}:1-3", "UUID:1-N is expected"),
        ("14:1-3", "UUID:1-N is expected"),
    ],
)
def test_t19_what_no_frontier_can_say_is_refused(text: str, problem: str, ids: tuple[str, str]) -> None:
    with pytest.raises(InvalidNotation, match=rf"TG-0570.*{problem}"):
        GTID.parse(text.format(*ids))


def test_white_space_and_letters_of_either_case_are_as_mysql_prints_them() -> None:
    expected = Frontier({TEA: 4, SALT: 2})
    for text in (f"{TEA}:1-3,{SALT}:1", f"{TEA.upper()}:1-3,\n{SALT}:1-1", f"  {TEA}:1-3 ,\r\n\t{SALT}:1\n"):
        assert GTID.parse(text) == expected
    assert GTID.render(expected) == f"{TEA}:1-3,\n{SALT}:1"


def test_letters_of_either_case_are_one_order_and_one_server() -> None:
    with pytest.raises(InvalidNotation, match="there twice"):
        GTID.parse(f"{TEA}:1-3,{TEA.upper()}:1-3")
    low, high = f"a{TEA[1:]}", f"B{TEA[1:]}"
    assert list(GTID.parse(f"{low}:1,{high}:1")) == [low, high.lower()]


def test_the_last_transaction_that_there_can_be_has_a_position() -> None:
    text = f"{TEA}:1-{2**63 - 2}"
    assert GTID.parse(text) == Frontier({TEA: 2**63 - 1})
    assert GTID.render(GTID.parse(text)) == text


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=20))
def test_reading_transactions_moves_a_frontier_as_splitting_servers_off_does(reads: list[tuple[int, int]]) -> None:
    outstanding: MutableAntichain[Any] = MutableAntichain(PARTITIONED)
    outstanding.update([(PARTITIONED.minimum, 1)])
    frontier, at = ORIGIN, dict.fromkeys(range(5), 0)
    for server, more in reads:
        before_ = frontier
        at[server] += more
        frontier = GTID.advance(frontier, toy(server).upper(), at[server])
        [holding] = [time for time in outstanding.elements() if time[0].contains(toy(server))]
        first, _, last = PARTITIONED.split(holding, toy(server))
        there = PARTITIONED.at(toy(server), at[server] + 1)
        outstanding.update([(holding, -1), *((time, 1) for time in (first, there, last) if time is not None)])
        assert frontier.follows(before_)
        assert outstanding.elements() == PARTITIONS.times(frontier)
    assert frontier == GTID.parse(GTID.render(frontier))


def test_a_server_does_not_go_back() -> None:
    frontier = Frontier({TEA: 8})
    assert GTID.advance(frontier, TEA, 7) == frontier
    with pytest.raises(GtidWentBack, match=r"TG-0576.*transaction 6 when transaction 7 was in"):
        GTID.advance(frontier, TEA, 6)
    with pytest.raises(GtidWentBack, match="the source had ended"):
        GTID.advance(frontier.seal(), TEA, 9)


@pytest.mark.parametrize(
    ("uuid", "number"), [("x", 5), (TEA, 0), (TEA, -1), (TEA, 2**63 - 1), (TEA, 5.0), (TEA, True)]
)
def test_what_is_no_transaction_is_refused(uuid: str, number: int) -> None:
    with pytest.raises(InvalidPlace, match="TG-0571"):
        GTID.advance(ORIGIN, uuid, number)
