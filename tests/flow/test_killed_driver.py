"""A real driver process, killed at every named point, loses and doubles nothing. Random instants: `tests/chaos`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from tests.flow import killable
from tests.flow.drivers import Drivers
from tests.flow.killable import Scene
from tests.sources.polls.server import Answer, Asked, served

import tidegauge as tg
from tidegauge.env import EFFECTS, POINTS, Effect
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import FlowNeverRan, NotPublished, OutputIsBehind

Rows = dict[str, list[tuple[Any, ...]]]

SCENES: dict[Effect, Scene] = {
    "record failure": "bad line",
    "record output failure": "bad function",
    "begin incarnation": "new upstream",
    "record gap": "new upstream",
    "record told": "new upstream",
    "record start": "late",
    "begin backfill": "late",
    "record unit": "late",
    "end backfill": "late",
    "record columns": "columns",
}
"""The effects that a flow in which nothing fails does not come to, and the scene in which it does."""

OFTEN: dict[Effect, tuple[int, ...]] = {"append bindings": (1, 5), "commit output": (1, 5), "stage": (1,)}
"""At which other times than the first some effects are struck."""

SOON = "after commit output"
"""Where `make test` strikes; `make long` does so everywhere."""

STRIKES = [
    pytest.param(
        f"{side} {effect}",
        nth,
        id=f"{side} {effect} {nth}",
        marks=() if nth == 0 and f"{side} {effect}" == SOON else pytest.mark.long,
    )
    for effect in EFFECTS
    if effect != "stage poll"  # see `POLLS`
    for side in ("before", "after")
    for nth in (0, *OFTEN.get(effect, ()))
]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    started = Drivers(tmp_path_factory.mktemp("log") / "drivers.log")
    yield started
    started.close()


def content(root: Path, scene: Scene = "whole") -> Rows:
    """Every row of every output with its epoch; partitions, which name this very file, left out."""
    flow = killable.make(root, scene=scene)
    found: Rows = {}
    for output in flow.outputs:
        found[output] = []
        with suppress(FlowNeverRan, NotPublished, OutputIsBehind):
            table = tg.read_arrow(flow, output)
            if scene == "columns" and output in ("orders", "loud") and "note" not in table.column_names:
                table = table.append_column("note", pa.nulls(len(table), pa.string()))  # it has no such row yet
            names = sorted((n for n in table.column_names if n != "_partition"), key="_epoch".__eq__)
            found[output] = sorted(zip(*[table.column(name).to_pylist() for name in names], strict=True))
    return found


def states(root: Path, scene: Scene) -> dict[str, tuple[str, str | None]]:
    """The state of every source and output, with the code of what is wrong with it."""
    report = tg.status(killable.make(root, scene=scene))
    found: list[tuple[str, str, str, TidegaugeError | None]]
    found = [("source", s.name, s.state, s.error) for s in report.sources]
    found += [("output", o.name, o.state, o.error) for o in report.outputs]
    return {f"{kind} {name}": (state, error.code if error else None) for kind, name, state, error in found}


def published(root: Path) -> int:
    with suppress(FlowNeverRan):
        return tg.status(killable.make(root)).published
    return 0


@dataclass(frozen=True)
class Undisturbed:
    """What a run that nothing disturbed has made."""

    rows: Rows
    states: dict[str, tuple[str, str | None]]


RunOf = Callable[[Scene], Undisturbed]


@pytest.fixture(scope="module")
def undisturbed(drivers: Drivers, tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """What comes of a scene, which is run once, when a test asks for it."""

    @cache
    def run(scene: Scene) -> Undisturbed:
        root = tmp_path_factory.mktemp("undisturbed")
        killable.fill(root, scene=scene)
        assert not drivers.live(root, scene=scene)
        return Undisturbed(content(root, scene), states(root, scene))

    return run


def up_to(rows: Rows, epoch: int) -> Rows:
    """The rows of epochs before `epoch`. The epoch is the last column of every output."""
    return {output: [row for row in found if row[-1] < epoch] for output, found in rows.items()}


def sizes(rows: Rows) -> dict[str, int]:
    return {output: len(found) for output, found in rows.items()}


@pytest.mark.long
def test_what_fails_ends_where_it_fails_and_all_else_is_as_if_nothing_had(undisturbed: RunOf) -> None:
    whole, line, function = undisturbed("whole"), undisturbed("bad line"), undisturbed("bad function")
    assert sizes(whole.rows) == {"orders": 360, "loud": 360, "prices": 400, "rows": 500}
    assert {state for state, _code in whole.states.values()} == {"idle", "sealed", "live"}

    assert sizes(line.rows) == {
        **sizes(whole.rows),
        "orders": len(line.rows["orders"]),
        "loud": len(line.rows["orders"]),
    }
    assert 0 < len(line.rows["orders"]) < 360
    assert line.states["source orders"] == ("failed", "TG-0502")
    assert {name for name, (state, _) in line.states.items() if state == "failed"} == {
        *("source orders", "output orders", "output loud")
    }

    assert sizes(function.rows) == {**sizes(whole.rows), "loud": len(function.rows["loud"])}
    assert 0 < len(function.rows["loud"]) < 360
    assert function.states["output loud"] == ("failed", "TG-0110")
    assert [name for name, (state, _) in function.states.items() if state == "failed"] == ["output loud"]


def test_every_effect_is_struck_before_and_after() -> None:
    struck = {param.values[0] for param in STRIKES if param.values[1] == 0}
    assert struck | {point for point, _nth in POLLS} == set(POINTS)


@pytest.mark.parametrize(("point", "nth"), STRIKES)
def test_killed_at_a_named_point(point: str, nth: int, drivers: Drivers, undisturbed: RunOf, tmp_path: Path) -> None:
    scene: Scene = next((scene for effect, scene in SCENES.items() if point.endswith(f" {effect}")), "whole")
    expected = undisturbed(scene)
    killable.fill(tmp_path, scene=scene)
    killed = drivers.live(tmp_path, scene=scene, point=point, nth=nth)
    assert killed or nth, f"no driver comes to {point!r}: make a scene in which one does"
    check_killed(tmp_path, scene, expected)
    assert not drivers.live(tmp_path, scene=scene)
    assert content(tmp_path, scene) == expected.rows
    assert states(tmp_path, scene) == expected.states


@pytest.mark.long
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("effect", ["append bindings", "stage", "commit output", "publish"])
def test_killed_while_tables_take_on_columns(
    side: str, effect: str, drivers: Drivers, undisturbed: RunOf, tmp_path: Path
) -> None:
    expected = undisturbed("columns")
    killable.fill(tmp_path, scene="columns")
    assert drivers.live(tmp_path, scene="columns", point=f"{side} {effect}", nth=0)
    check_killed(tmp_path, "columns", expected)
    assert not drivers.live(tmp_path, scene="columns")
    assert content(tmp_path, "columns") == expected.rows


def plain(rows: Rows) -> Rows:
    """Return rows without their epochs."""
    return {output: sorted(row[:-1] for row in found) for output, found in rows.items()}


POLLS = [
    *((f"{side} stage poll", nth) for side in ("before", "after") for nth in (0, 2, killable.PAGES - 1)),
    *((f"{side} {effect}", 0) for effect in ("append bindings", "stage") for side in ("before", "after")),
    *((f"{side} {effect}", 1) for effect in ("commit output", "publish") for side in ("before", "after")),
]
"""Where a driver is killed that polls. The epochs of pages depend on how fast the thread is that asks for them."""


@pytest.mark.parametrize(
    ("point", "nth"),
    [pytest.param(*one, marks=() if one == ("after stage poll", 2) else pytest.mark.long) for one in POLLS],
)
def test_o5_killed_while_it_polls_it_asks_for_no_page_again_that_is_staged(
    point: str, nth: int, drivers: Drivers, undisturbed: RunOf, tmp_path: Path
) -> None:
    expected = undisturbed("polls")
    assert sorted(n for n, _epoch in expected.rows["polled"]) == list(range(killable.PAGE * killable.PAGES))
    killable.fill(tmp_path, scene="polls")
    assert drivers.live(tmp_path, scene="polls", point=point, nth=nth), "no driver comes there"
    staged = len(list((tmp_path / "polls").rglob("*.json")))
    asked = (tmp_path / "asked").read_text().split()
    assert not drivers.live(tmp_path, scene="polls")
    again = (tmp_path / "asked").read_text().split()[len(asked) :]
    assert again
    assert min(map(int, again)) >= staged
    assert plain(content(tmp_path, "polls")) == plain(expected.rows)


@pytest.mark.parametrize(
    ("point", "nth"),
    [pytest.param(*one, marks=() if one == ("after stage poll", 2) else pytest.mark.long) for one in POLLS],
)
def test_killed_while_it_lists_it_has_each_file_once(point: str, nth: int, drivers: Drivers, tmp_path: Path) -> None:
    killable.fill(tmp_path, scene="listing")
    assert drivers.live(tmp_path, scene="listing", point=point, nth=nth), "no driver comes there"
    assert not drivers.live(tmp_path, scene="listing")
    found = content(tmp_path, "listing")["polled"]
    assert sorted(n for n, _epoch in found) == list(range(killable.PAGE * killable.PAGES))
    assert len(list((tmp_path / "listings").rglob("*.json"))) == killable.PAGES


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        pytest.param(*one, marks=() if one == ("after stage poll", 0) else pytest.mark.long)
        for one in POLLS
        if not (one[0].endswith("stage poll") and one[1])
    ],
)
def test_o5_killed_while_it_polls_over_http_it_gets_nothing_again_that_is_staged(
    point: str, nth: int, drivers: Drivers, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> Answer:
        if asked.headers.get("if-none-match") == '"A"':
            return Answer(status=304, headers={"ETag": '"A"'})
        given.append(asked)
        return Answer(b"".join(b'{"n": %d}\n' % n for n in range(50)), headers={"ETag": '"A"'})

    given: list[Asked] = []
    with served() as server:
        server.answer = answer
        killable.fill(tmp_path, scene="http")
        (tmp_path / "url").write_text(f"{server.url}/rates")
        assert drivers.live(tmp_path, scene="http", point=point, nth=nth), "no driver comes there"
        staged, before = len(list((tmp_path / "polls").rglob("*.json"))), len(given)
        assert not drivers.live(tmp_path, scene="http")
    assert len(given) - before == (0 if staged else 1)
    assert [n for n, _epoch in sorted(content(tmp_path, "http")["polled"])] == list(range(50))


def check_killed(root: Path, scene: Scene, expected: Undisturbed) -> None:
    """See that what is published is of the undisturbed run; a late table holds all of its past, or nothing."""
    found, there = content(root, scene), up_to(expected.rows, published(root))
    if (late := found.pop("late", None)) is not None:
        whole = there.pop("late")
        past = [row for row in whole if row[0] < killable.ADDED]
        assert late in (whole[:n] for n in (0, *range(len(past), len(whole) + 1)))
    assert found == there, "what is published differs from the undisturbed run"


PAST = [
    *((f"{side} begin backfill", 0) for side in ("before", "after")),
    *((f"{side} {effect}", n) for effect in ("stage", "record unit") for side in ("before", "after") for n in (0, 2)),
    *((f"{side} commit output", n) for side in ("before", "after") for n in (0, 1, 2, 4)),
    *((f"{side} {effect}", 0) for effect in ("end backfill", "publish") for side in ("before", "after")),
]
"""Where a driver is killed that gives a late table its past, beside live tables: in each phase of that table."""


@pytest.mark.parametrize(
    ("point", "nth"),
    [pytest.param(*one, marks=() if one == ("after record unit", 2) else pytest.mark.long) for one in PAST],
)
def test_killed_while_a_late_table_gets_its_past_it_shows_all_of_that_or_nothing(
    point: str, nth: int, drivers: Drivers, undisturbed: RunOf, tmp_path: Path
) -> None:
    expected = undisturbed("late")
    killable.fill(tmp_path)
    assert drivers.live(tmp_path, scene="late", point=point, nth=nth), "no driver comes there"
    check_killed(tmp_path, "late", expected)
    assert not drivers.live(tmp_path, scene="late")
    assert content(tmp_path, "late") == expected.rows
    assert states(tmp_path, "late") == expected.states


PLANNED = ("before begin backfill", "after begin backfill", "before record unit", "after record unit")
ENDED = ("after commit output", "before end backfill", "after end backfill")
SWAPS: dict[Scene, tuple[str, ...]] = {
    "replaced": (*PLANNED, "before commit output", *killable.ENTRIES, *ENDED),
    "replaced folder": (*PLANNED, "before commit output", *killable.RENAMES, *ENDED),
}
"""Where a driver is killed that replaces a table: before the commit that does, in it, and after it."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("scene", "point"),
    [
        pytest.param(
            scene, point, marks=() if point in ("after link", "after swap", "after hide") else pytest.mark.long
        )
        for scene, points in SWAPS.items()
        for point in points
    ],
)
def test_killed_while_it_replaces_a_table_it_leaves_the_old_rows_or_the_new_ones(
    scene: Scene, point: str, drivers: Drivers, undisturbed: RunOf, tmp_path: Path
) -> None:
    old, new = undisturbed("whole"), undisturbed(scene)
    assert sizes(old.rows) == sizes(new.rows)
    killable.fill(tmp_path)
    assert drivers.live(tmp_path, scene=scene, point=point)
    points, now = SWAPS[scene], SWAPS[scene].index(point)
    swapped = now > points.index("before link" if scene == "replaced" else "before swap")
    assert content(tmp_path, scene) == (new if swapped else old).rows
    seen, whole = strangers_names(tmp_path, scene), names(new if swapped else old, scene)
    if swapped and scene == "replaced folder" and now < points.index("after show"):
        left, every = Counter(seen), Counter(names(old, scene))
        assert left <= every, "who lists the folder misses some of the old rows, and sees none twice"
        assert (left == every) == (point in ("after swap", "before hide"))
        assert (not left) == (point == "before show")
    else:
        assert seen == whole, "whoever opens the table sees the same"
    assert not drivers.live(tmp_path, scene=scene)
    assert content(tmp_path, scene) == new.rows
    assert strangers_names(tmp_path, scene) == names(new, scene)
    assert states(tmp_path, scene) == new.states


def strangers_names(root: Path, scene: Scene) -> list[str]:
    """The names in the table that is replaced, as somebody reads it who knows nothing of Tidegauge."""
    folder = root / "lake" / killable.REPLACED[scene]
    if scene == "replaced":
        return sorted(DeltaTable(str(folder)).to_pyarrow_table()["name"].to_pylist())
    found = ds.dataset(str(folder)).to_table()
    return sorted(found["name"].to_pylist()) if found.num_rows else []


def names(found: Undisturbed, scene: Scene) -> list[str]:
    return sorted(row[1] for row in found.rows[killable.REPLACED[scene]])
