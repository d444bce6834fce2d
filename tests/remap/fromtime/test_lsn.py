"""PostgreSQL's log positions, up to the last one that a signed integer of 64 bits has room for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.fromtime import InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime import LSN, WAL, Lsn
from tidegauge.remap.frontier import ORIGIN, Frontier

everywhere = st.integers(0, 2**64 - 1) | st.integers(2**53 - 1, 2**53 + 1) | st.integers(2**63 - 2, 2**63 + 1)


@given(everywhere, everywhere)
def test_an_lsn_is_an_integer_of_64_bits_in_two_halves(a: int, b: int) -> None:
    assert Lsn.parse(str(Lsn(a))) == Lsn(a)
    assert str(Lsn(a)) == f"{a // 2**32:X}/{a % 2**32:X}"
    assert (Lsn(a) < Lsn(b)) == (a < b)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0/0", 0),
        ("0/16B3748", 0x16B3748),
        ("16/b374d848", 0x16B374D848),
        ("16/0000000A", 0x160000000A),
        ("7FFFFFFF/FFFFFFFF", 2**63 - 1),
        ("FFFFFFFF/FFFFFFFF", 2**64 - 1),
    ],
)
def test_both_notations_of_postgresql_are_read(text: str, value: int) -> None:
    assert Lsn.parse(text) == Lsn(value)


@given(st.integers(0, 2**63 - 2))
def test_what_committed_at_an_lsn_is_in_from_the_next_position_on(commit: int) -> None:
    upper = Frontier({WAL: Lsn(commit).after})
    assert upper == LSN.parse(str(Lsn(commit + 1)))
    assert LSN.parse(str(Lsn(commit)))[WAL] <= commit < upper[WAL]


def test_the_log_begins_at_the_origin() -> None:
    assert LSN.parse("0/0") == ORIGIN
    assert LSN.render(ORIGIN) == "0/0"


def test_positions_end_where_signed_integers_of_64_bits_do() -> None:
    assert LSN.parse("7FFFFFFF/FFFFFFFF") == Frontier({WAL: 2**63 - 1})
    for beyond in (Lsn(2**63 - 1), Lsn(2**64 - 1)):
        with pytest.raises(InvalidPlace, match=r"TG-0571.*is 2\*\*63 or more, and positions are signed"):
            _ = beyond.after
    with pytest.raises(InvalidPlace, match="the LSN 80000000/0 is 2"):
        LSN.parse("80000000/0")


@pytest.mark.parametrize("value", [-1, 2**64, True, 5.0, "5"])
def test_what_is_no_lsn_is_refused(value: int) -> None:
    with pytest.raises(InvalidNotation, match="TG-0570"):
        Lsn(value)
