"""Every kind of clock, and one that a user might write, against the laws that all of them hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import strategies as st
from tests.remap.fromtime.conformance import LAWS, Clock

from tidegauge.dataflow.order import PARTITIONED
from tidegauge.errors.fromtime import InvalidNotation, InvalidPlace
from tidegauge.remap.fromtime import GTID, LSN, MARIADB, NUMBERED, PARTITIONS, SEQUENCE, Partitions, checked
from tidegauge.remap.frontier import Frontier
from tidegauge.testing.strategies import clock_frontiers


def in_times(from_time: Partitions) -> Callable[[str, str], bool]:
    """Compare the antichains: whether each time of the second is at or beyond some time of the first."""

    def at_or_before(a: str, b: str) -> bool:
        one, other = (from_time.times(from_time.parse(text)) for text in (a, b))
        return all(any(PARTITIONED.less_equal(x, y) for x in one) for y in other)

    return at_or_before


def as_log(a: str, b: str) -> bool:
    one, other = (tuple(int(half, 16) for half in text.split("/")) for text in (a, b))
    return one <= other


def as_sets(a: str, b: str) -> bool:
    """Whether a GTID set is within another one, interval by interval."""
    one, other = (dict(re.findall(r"(\S{36}):1(?:-(\d+))?", text)) for text in (a, b))
    return all(uuid in other and int(last or 1) <= int(other[uuid] or 1) for uuid, last in one.items())


def by_domain(a: str, b: str) -> bool:
    one, other = (dict(part.split("-") for part in text.split(",") if part) for text in (a, b))
    return all(domain in other and int(last) <= int(other[domain]) for domain, last in one.items())


@dataclass(frozen=True)
class Chapters:
    """A kind that a user might write: a book that grows, whose chapters and pages are one count."""

    kind: str = "chapters"

    def check(self, partition: str, position: int, /) -> None:
        if partition != "book":
            raise InvalidPlace(kind=self.kind, partition=partition, position=position, problem="it is no book")

    def parse(self, text: str, /) -> Frontier:
        found = (
            re.fullmatch(r"chapter (0|[1-9][0-9]{0,9}), page ([0-9]{1,3})", text) if isinstance(text, str) else None
        )
        if found is None:
            raise InvalidNotation(kind=self.kind, text=repr(text), problem="it is no chapter and page")
        return Frontier({"book": int(found[1]) * 1000 + int(found[2])})

    def render(self, frontier: Frontier, /) -> str:
        chapter, page = divmod(checked(self, frontier)["book"], 1000)
        return f"chapter {chapter}, page {page}"


CLOCKS = (
    Clock(
        from_time=PARTITIONS,
        frontiers=clock_frontiers(PARTITIONS, sealed=False),
        at_or_before=in_times(PARTITIONS),
        refused=(
            "p0",
            "p0@",
            "@5@5",
            "p0@-1",
            "p0@05",
            "p0@1.0",
            "p0@1e3",
            "p0@5,",
            ",",
            "p0@5 p1@2",
            "p0@5, p0@6",
            f"p0@{2**63}",
            '"p0@5',
            '"\\x"@5',
            '"a\nb"@5',
            '"\\ud800"@5',
            '"\\u0000"@5',
        ),
        misplaced=(),
    ),
    Clock(
        from_time=NUMBERED,
        frontiers=clock_frontiers(NUMBERED, sealed=False),
        at_or_before=in_times(NUMBERED),
        refused=("p0@5", "01@5", "-0@5", "+1@5", "1.0@5", "1e3@5", "1_0@5", "٣@5", f"{2**63}@5", '""@5', "1@5, 1@6"),
        misplaced=(("p0", 5), ("01", 5), ("", 5), (str(2**63), 5), (str(-(2**63) - 1), 5), ("1.0", 5)),
    ),
    Clock(
        from_time=LSN,
        frontiers=clock_frontiers(LSN, sealed=False),
        at_or_before=as_log,
        refused=(
            "",
            "0",
            "/",
            "0/",
            "/0",
            "0/0/0",
            "0x0/0",
            "G/0",
            "100000000/0",
            "0/100000000",
            "-1/0",
            "0/0 ",
            " 0/0",
            "0/0\n",
            "80000000/0",
            "FFFFFFFF/FFFFFFFF",
            "٣/0",
        ),
        misplaced=(("p0", 5), ("", 5)),
    ),
    Clock(
        from_time=GTID,
        frontiers=clock_frontiers(GTID, sealed=False),
        at_or_before=as_sets,
        refused=(
            ",",
            "u:1-3",
            f"{UUID(int=14)}",
            f"{UUID(int=14)}:",
            f"{UUID(int=14).hex}:1",
            f"{{{UUID(int=14)}}}:1",
        ),
        misplaced=(("p0", 5), ("", 5), (str(UUID(int=14)), 1), (str(UUID(int=10**30)).upper(), 5)),
    ),
    Clock(
        from_time=MARIADB,
        frontiers=clock_frontiers(MARIADB, sealed=False),
        at_or_before=by_domain,
        refused=(
            ",",
            "1",
            "1-",
            "-1",
            "1-2-3-4",
            "1-0",
            "01-1",
            "1-01",
            "0-1,0-2",
            "0-1, 1-1",
            "4294967296-1",
            f"0-{2**63}",
        ),
        misplaced=(("p0", 5), ("", 5), ("01", 5), ("-1", 5), (str(2**32), 5), ("0", 1)),
    ),
    Clock(
        from_time=SEQUENCE,
        frontiers=clock_frontiers(SEQUENCE, sealed=False),
        at_or_before=lambda a, b: int(a) <= int(b),
        refused=("", "-1", "+1", "01", "1.0", "1e3", "1_000", " 1", "1\n", "NaN", str(2**63), "9" * 5000, "٣"),
        misplaced=(("p0", 5), ("", 5)),
    ),
    Clock(
        from_time=Chapters(),
        frontiers=st.integers(0, 10**12).map(lambda n: Frontier({"book": n})),
        at_or_before=lambda a, b: tuple(map(int, re.findall(r"\d+", a))) <= tuple(map(int, re.findall(r"\d+", b))),
        refused=("", "chapter 1", "page 3"),
        misplaced=(("scroll", 5),),
    ),
)


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: clock.from_time.kind)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_laws_of_clocks(law: Callable[[Clock], None], clock: Clock) -> None:
    law(clock)
