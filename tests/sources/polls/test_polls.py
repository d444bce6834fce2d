"""What a function fetches is staged once and read once, whatever it does and whenever its driver dies."""

from __future__ import annotations

import math
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.polls.polling import NOW, Driver, Pages, polling, rows_of

import tidegauge as tg
from tidegauge.disk import write_durably
from tidegauge.env import Env
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.errors.polls import (
    KeysUnfit,
    NotFetched,
    PollDamaged,
    PollFailed,
    PollOverdue,
    PollsElsewhere,
    PollsForgotten,
    PollUnfit,
    StateCameBack,
    StateNotKept,
)
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import RecordsLost
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime import SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.polls import poller
from tidegauge.sources.polls.states import decoded, encoded


def numbers(driver: Driver) -> list[int]:
    return [row["n"] for row in driver.rows()]


def test_polls_bring_each_row_once_and_pages_are_fetched_without_waiting(tmp_path: Path) -> None:
    upstream = Pages(rows=list(range(7)))
    driver = Driver(polling(tmp_path, upstream))
    assert driver.poll()
    assert numbers(driver) == list(range(7))
    assert upstream.calls == [None, 3, 6]
    upstream.rows += [7, 8]
    assert driver.poll()
    assert numbers(driver) == list(range(9))
    assert upstream.calls == [None, 3, 6, 7]


def test_o1_o10_an_unchanged_poll_writes_nothing(tmp_path: Path) -> None:
    upstream = Pages(rows=[1, 2])
    driver = Driver(polling(tmp_path, upstream))
    driver.poll()
    there, bindings = sorted(tmp_path.rglob("*")), driver.bindings
    for _ in range(5):
        assert not driver.poll()
    assert upstream.calls == [None, *[2] * 5]
    assert (sorted(tmp_path.rglob("*")), driver.bindings) == (there, bindings)


def test_nothing_is_asked_before_its_time(tmp_path: Path) -> None:
    upstream = Pages(rows=[1])
    driver = Driver(polling(tmp_path, upstream, every=10))
    driver.poll()
    for _ in range(9):
        driver.clock.now += 1
        driver.look()
    assert upstream.calls == [None]
    driver.clock.now += 1
    driver.look()
    assert upstream.calls == [None, 1]


def test_o11_a_state_without_rows_is_bound_by_itself(tmp_path: Path) -> None:
    heights = iter(["100@a", "150@b", "150@b"])
    seen: list[Any] = []

    def fetch(state: Any) -> tg.Fetched:
        seen.append(state)
        return tg.Fetched([], next(heights))

    driver = Driver(polling(tmp_path, fetch))
    assert driver.poll()
    assert driver.poll()
    assert not driver.poll()
    assert seen == [None, "100@a", "150@b"]
    assert not driver.bound.frontier
    assert not (tmp_path / "polls").exists()


def test_o5_what_is_staged_is_never_fetched_again(tmp_path: Path) -> None:
    upstream = Pages(rows=[1, 2, 3, 4, 5])
    source = polling(tmp_path, upstream)
    died = Driver(source)
    died.look()  # staged, and never bound
    calls = list(upstream.calls)
    driver = Driver(source)
    seen = driver.look()
    assert upstream.calls[len(calls) :] == [5]  # it goes on from what is staged
    assert dict(seen.upper) == {"polls": 2}
    driver.bind(seen)
    assert numbers(driver) == [1, 2, 3, 4, 5]


def test_o6_what_is_bound_is_read_from_the_log(tmp_path: Path) -> None:
    upstream = Pages(rows=[1, 2, 3])
    driver = Driver(polling(tmp_path, upstream))
    driver.poll()
    upstream.wrong = lambda: pytest.fail("a task asked upstream")
    copy = pickle.loads(pickle.dumps(driver.source))
    assert [row["n"] for row in rows_of(copy, driver.bound)] == [1, 2, 3]
    with pytest.raises(InvalidArgument, match="function"):
        copy.attended(Env())


def test_o12_two_drivers_that_poll_at_once_have_one_poll(tmp_path: Path) -> None:
    upstream = Pages(rows=[1, 2])
    source = polling(tmp_path, upstream)
    first, second = Driver(source), Driver(source)
    second.poller.probe(second.bound, now=NOW)  # the zombie is first
    upstream.rows.append(3)
    seen = first.look()
    first.bind(seen)
    first.poll()
    assert numbers(first) == [1, 2, 3]
    second.bound = first.bound
    second.poll()
    assert numbers(second) == [1, 2, 3]


@pytest.mark.parametrize("how", ["append", "ledger", "snapshot"])
def test_o12_a_poll_that_lost_the_race_is_let_go(tmp_path: Path, how: Any) -> None:
    rows, racing = [1, 2], threading.Event()
    rival: list[Driver] = []

    def fetch(state: int | None) -> tg.Fetched:
        at = (state or 0) if how == "append" else 0
        found = tg.Fetched([{"n": n} for n in rows[at:]], len(rows))
        if rival and not racing.is_set():
            racing.set()
            rows.append(8)
            rival[0].poll()  # between our answer and our staging, and it sees more than we did
        return found

    source = polling(tmp_path, fetch, merge=how, key=() if how == "append" else "n")
    driver = Driver(source)
    driver.poll()
    rival.append(Driver(source, bound=driver.bound))
    rows += [3, 4]
    driver.poll()
    assert racing.is_set()
    rows.append(5)
    driver.poll()
    assert sorted(numbers(driver)) == [1, 2, 3, 4, 5, 8]
    assert len(list(tmp_path.rglob("*.parquet"))) == driver.bound.frontier["polls"]


def until(holds: Callable[[], bool], *, raises: type[Exception]) -> None:
    """Wait until something holds, which may raise until then."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with suppress(raises):
            if holds():
                return
    raise AssertionError("it never holds")


def raises(error: BaseException) -> Any:
    def wrong() -> Any:
        raise error

    return wrong


BAD: dict[str, tuple[Any, type[TidegaugeError], str]] = {
    "raises": (raises(ValueError("no such host")), PollFailed, "ValueError: no such host"),
    "exits": (raises(SystemExit(3)), PollFailed, "SystemExit"),
    "returns nothing": (lambda: None, NotFetched, "NoneType, which is no tg.Fetched"),
    "returns a list": (lambda: [{"n": 1}], NotFetched, "list, which is no tg.Fetched"),
    "rows are a text": (lambda: tg.Fetched("n", 1), NotFetched, "rows of type str"),
    "rows are lists": (lambda: tg.Fetched([[1]], 1), NotFetched, "item 0 is of type list"),
    "a text in a number": (lambda: tg.Fetched([{"n": 1}, {"n": "x"}], 1), PollUnfit, "column n"),
    "a fraction in a number": (lambda: tg.Fetched([{"n": 1.5}], 1), PollUnfit, "1.5 is no int64"),
    "a truth in a number": (lambda: tg.Fetched([{"n": True}], 1), PollUnfit, "True is no int64"),
    "other columns": (lambda: tg.Fetched([{"m": 1}], 1), PollUnfit, "none of its columns is declared: \\['m'\\]"),
    "a wide table": (lambda: tg.Fetched(pa.table({"n": pa.array([1], pa.float64())}), 1), PollUnfit, "double"),
    "a column twice": (lambda: tg.Fetched(pa.table([[1], [2]], ["n", "n"]), 1), PollUnfit, "'n' twice"),
    "a state of a class": (lambda: tg.Fetched([{"n": 1}], {"at": 1j}), StateNotKept, "state\\['at'\\] is of type"),
    "a state of a subclass": (lambda: tg.Fetched([{"n": 1}], type("Mine", (dict,), {})()), StateNotKept, "Mine"),
    "a large state": (lambda: tg.Fetched([{"n": 1}], "x" * (1 << 20)), StateNotKept, "1048"),
    "a deep state": (lambda: tg.Fetched([{"n": 1}], eval("[" * 14 + "]" * 14)), StateNotKept, "deeper than"),
    "a half of a text": (lambda: tg.Fetched([{"n": 1}], "\ud800"), StateNotKept, "no Unicode"),
    "o14 the state of before": (lambda: tg.Fetched([{"n": 9}], 2), StateCameBack, "1 rows with the state"),
}


@pytest.mark.parametrize("name", BAD)
def test_o14_a_function_that_does_wrong_stalls_its_source_and_nothing_is_kept(tmp_path: Path, name: str) -> None:
    upstream = Pages(rows=[1, 2])
    driver = Driver(polling(tmp_path, upstream))
    driver.poll()
    there = sorted(tmp_path.rglob("*"))
    upstream.wrong, error, problem = BAD[name]
    driver.clock.now += 60
    for _ in range(3):
        with pytest.raises(error, match=problem) as caught:
            driver.look()
        assert isinstance(caught.value, Transient)
        assert not isinstance(caught.value, Definite)
        driver.clock.now += 0.1
    assert len(upstream.calls) == 2, "it is not called again at once"
    assert sorted(tmp_path.rglob("*")) == there
    upstream.wrong = None
    upstream.rows.append(3)
    driver.poll()
    assert upstream.calls[2:] == [2], "it goes on from the state of before"
    assert numbers(driver) == [1, 2, 3]


def test_pages_that_were_staged_before_an_error_are_bound_first(tmp_path: Path) -> None:
    upstream = Pages(rows=list(range(5)))

    def fetch(cursor: int | None) -> Any:
        if cursor == 3:
            raise OSError("gone")
        return upstream(cursor)

    driver = Driver(polling(tmp_path, fetch))
    seen = driver.look()
    assert dict(seen.upper) == {"polls": 1}
    driver.bind(seen)
    with pytest.raises(PollFailed, match="gone"):
        driver.look()
    assert numbers(driver) == [0, 1, 2]


def test_a_function_that_fails_is_called_after_growing_delays(tmp_path: Path) -> None:
    upstream = Pages(wrong=raises(ValueError("no")))
    driver = Driver(polling(tmp_path, upstream))
    at: list[float] = []
    while driver.clock.now < 70:
        before = len(upstream.calls)
        with pytest.raises(PollFailed):
            driver.look()
        if len(upstream.calls) > before:
            at.append(driver.clock.now)
        driver.clock.now += 0.5
    assert at == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0]


@pytest.mark.parametrize("apart", [0.2, 0.3, 0.4, 0.75, 0.99])
def test_looks_that_come_late_cost_no_polls(tmp_path: Path, apart: float) -> None:
    upstream, at = Pages(), list[float]()
    driver = Driver(polling(tmp_path, upstream, every=1.0))
    for look in range(int(60 / apart)):
        driver.clock.now = look * apart
        driver.look()
        if len(upstream.calls) > len(at):
            at.append(driver.clock.now)
    assert abs(len(at) - 60) <= 1
    assert min(b - a for a, b in pairwise(at)) >= 0.75 - 1e-9


def test_a_poll_that_comes_very_late_is_not_followed_by_another_at_once(tmp_path: Path) -> None:
    upstream = Pages()
    driver = Driver(polling(tmp_path, upstream, every=60.0))
    for now, calls in ((0, 1), (3600, 2), (3644, 2), (3646, 3)):
        driver.clock.now = now
        driver.look()
        assert len(upstream.calls) == calls


def test_a_function_that_never_returns_is_overdue_and_is_not_called_beside_itself(tmp_path: Path) -> None:
    release, calls = threading.Event(), list[Any]()

    def fetch(state: Any) -> tg.Fetched:
        calls.append(state)
        release.wait(60)
        return tg.Fetched([{"n": 1}], 1)

    driver = Driver(polling(tmp_path, fetch, timeout=5))
    driver.poller = driver.source.attended(driver.env)
    seen = driver.look()
    assert seen.coming
    assert not seen.more
    driver.clock.now += 6
    for _ in range(3):
        with pytest.raises(PollOverdue, match="has not ended for 6 seconds"):
            driver.look()
    assert calls == [None]
    release.set()
    until(lambda: driver.look().more, raises=PollOverdue)
    driver.bind(driver.look())
    assert numbers(driver) == [1]


def test_upstream_is_left_alone_while_too_much_waits_to_be_bound(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(poller, "AHEAD", 4)
    upstream = Pages(size=1, rows=list(range(10)))
    driver = Driver(polling(tmp_path, upstream))
    for _ in range(5):
        driver.clock.now += 60
        seen = driver.look()
    assert len(upstream.calls) == 4
    assert dict(seen.upper) == {"polls": 4}
    driver.bind(seen)
    driver.poll()
    assert numbers(driver) == list(range(10))


def test_o4_o17_a_watermark_never_goes_back(tmp_path: Path) -> None:
    days = iter([2, None, 1, 3])

    def fetch(state: int | None) -> tg.Fetched:
        day = next(days)
        mark = None if day is None else datetime(2050, 1, day, tzinfo=UTC)
        return tg.Fetched([{"n": 1}], (state or 0) + 1, watermark=mark)

    driver = Driver(polling(tmp_path, fetch))
    found = []
    for _ in range(4):
        driver.poll()
        assert driver.bound.state is not None
        found.append(driver.bound.state.watermark)
    assert [mark.day for mark in found if mark] == [2, 2, 2, 3]


def test_rows_may_be_tables_batches_and_dicts_with_more_or_fewer_columns(tmp_path: Path) -> None:
    given = iter(
        [
            pa.table({"n": pa.array([1], pa.int8()), "more": ["x"]}),
            pa.record_batch({"s": pa.array(["a"], pa.large_string()), "n": [2]}),
            pa.table({"n": pa.chunked_array([[3], [4]])}),
            [{"n": 5, "other": object()}, {"s": "b"}],
        ]
    )
    source = polling(tmp_path, lambda state: tg.Fetched(next(given), (state or 0) + 1), columns="n long, s string")
    driver = Driver(source)
    for _ in range(4):
        driver.poll()
    found = [(row["n"], row["s"]) for row in driver.rows()]
    assert found == [(1, None), (2, "a"), (3, None), (4, None), (5, None), (None, "b")]


def test_a_required_column_is_required(tmp_path: Path) -> None:
    source = polling(tmp_path, lambda _: tg.Fetched([{"n": 1}, {"n": None}], 1), columns="n long NOT NULL")
    with pytest.raises(PollUnfit, match="row 1, column n: null"):
        Driver(source).look()


def keyed(tmp_path: Path, how: Any, **given: Any) -> tuple[Driver, dict[int, str]]:
    rows: dict[int, str] = {}

    def fetch(_state: Any) -> tg.Fetched:
        return tg.Fetched([{"n": n, "s": s} for n, s in rows.items()], None)

    return Driver(polling(tmp_path, fetch, columns="n long, s string", merge=how, key="n", **given)), rows


def test_a_ledger_takes_each_key_once_and_needs_no_state(tmp_path: Path) -> None:
    driver, rows = keyed(tmp_path, "ledger")
    rows |= {1: "a", 2: "b"}
    driver.poll()
    rows |= {2: "other", 3: "c"}
    driver.poll()
    assert not driver.poll()
    driver = Driver(driver.source, bound=driver.bound)  # another run knows the keys from the log
    rows |= {4: "d"}
    driver.poll()
    assert [(row["n"], row["s"]) for row in driver.rows()] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_o2_a_snapshot_tells_what_became_of_each_key(tmp_path: Path) -> None:
    driver, rows = keyed(tmp_path, "snapshot")
    rows |= {1: "a", 2: "b"}
    driver.poll()
    assert not driver.poll()
    driver = Driver(driver.source, bound=driver.bound)
    del rows[1]
    rows |= {2: "B", 3: "c"}
    driver.poll()
    assert [(row["n"], row["s"], row["_op"]) for row in driver.rows()] == [
        (1, "a", "insert"),
        (2, "b", "insert"),
        (1, "a", "delete"),
        (2, "b", "before"),
        (2, "B", "update"),
        (3, "c", "insert"),
    ]
    assert not Driver(driver.source, bound=driver.bound).poll()


def test_an_upsert_is_an_update_and_needs_a_state(tmp_path: Path) -> None:
    driver, rows = keyed(tmp_path, "upsert")
    rows |= {1: "a"}
    driver.clock.now += 60
    with pytest.raises(StateCameBack):
        driver.look()


@pytest.mark.parametrize(("rows", "problem"), [([{"n": 1}, {"n": 1}], "came before"), ([{"s": "x"}], "null")])
def test_a_snapshot_without_sound_keys_is_refused(tmp_path: Path, rows: Any, problem: str) -> None:
    source = polling(tmp_path, lambda _: tg.Fetched(rows), columns="n long, s string", merge="snapshot", key="n")
    with pytest.raises(KeysUnfit, match=problem):
        Driver(source).look()


def test_a_snapshot_comes_whole(tmp_path: Path) -> None:
    source = polling(tmp_path, lambda _: tg.Fetched([{"n": 1}], 1, more=True), merge="snapshot", key="n")
    with pytest.raises(NotFetched, match="a snapshot comes whole"):
        Driver(source).look()


def test_rows_that_could_not_be_staged_come_again(tmp_path: Path, monkeypatch: Any) -> None:
    """A ledger must not know keys that never got into the log."""
    driver, rows = keyed(tmp_path, "ledger")
    rows |= {1: "a"}

    def full(*_given: Any, **_more: Any) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tidegauge.sources.polls.log.create", full)
        with pytest.raises(OSError, match="No space"):
            driver.look()
    assert not list(tmp_path.rglob("*.parquet"))
    driver.poll()
    assert numbers(driver) == [1]


def bound_three(tmp_path: Path) -> Driver:
    driver = Driver(polling(tmp_path, Pages(size=1, rows=[1, 2, 3])))
    driver.poll()
    return driver


def log_of(tmp_path: Path) -> Path:
    return tmp_path / "polls" / "0"


def test_an_emptied_folder_is_another_log(tmp_path: Path) -> None:
    driver = bound_three(tmp_path)
    for path in log_of(tmp_path).iterdir():
        path.unlink()
    with pytest.raises(UpstreamRecreated, match="poll 2 in"):
        Driver(driver.source, bound=driver.bound).look()
    with pytest.raises(RecordsLost):
        driver.rows()
    shutil.rmtree(log_of(tmp_path))
    with pytest.raises(FileNotFoundError):
        Driver(driver.source, bound=driver.bound).look()


@pytest.mark.parametrize("merge", ["ledger", "snapshot"])
@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_merge_whose_polls_are_gone_says_so_until_they_are_back(tmp_path: Path, merge: str, ending: str) -> None:
    pages = Pages(size=9)
    pages.wrong = lambda: tg.Fetched([{"n": n} for n in range(len(pages.calls))])
    one = Driver(polling(tmp_path, pages, merge=merge, key="n"))
    for _ in range(3):
        one.poll()
    [first] = (tmp_path / "polls").rglob(f"000000000000*.{ending}")
    away = first.rename(tmp_path / "away")
    again = Driver(one.source, bound=one.bound)
    with pytest.raises(PollsForgotten, match=r"begins at 0 is gone from its log in .*/0, and merge='"):
        again.look()
    away.rename(first)
    again = Driver(one.source, bound=one.bound)
    again.poll()
    assert [row["n"] for row in again.rows()] == [0, 1, 2, 3, 4]


def test_a_folder_of_another_flow_is_refused(tmp_path: Path) -> None:
    driver, other = bound_three(tmp_path / "a"), bound_three(tmp_path / "b")
    Driver(polling(tmp_path / "b", lambda _: tg.Fetched([], 3)), bound=other.bound).look()
    shutil.rmtree(log_of(tmp_path / "a"))
    shutil.copytree(log_of(tmp_path / "b"), log_of(tmp_path / "a"))
    with pytest.raises(UpstreamRecreated):
        driver.rows()
    with pytest.raises(UpstreamRecreated):
        Driver(driver.source, bound=driver.bound).look()


def test_a_log_is_known_by_a_later_poll_that_its_bound_ones_lead_to(tmp_path: Path) -> None:
    """A store that was recovered from a table that was begun late has an epoch with the digest of the next one."""
    driver = bound_three(tmp_path)
    assert driver.bound.state is not None
    for polls in (1, 2):
        state = SourceState(kind=driver.bound.state.kind, source_id=driver.bound.state.source_id, value=polls)
        recovered = replace(driver.bound, frontier=Frontier({"polls": polls}), state=state)
        assert rows_of(driver.source, recovered) == [{"n": n + 1} for n in range(polls)]
        again = Driver(driver.source, bound=recovered)
        again.poll()
        assert numbers(again) == [1, 2, 3]
        foreign = replace(recovered, details={"polls": {"digest": "another"}})
        with pytest.raises(UpstreamRecreated):
            Driver(driver.source, bound=foreign).look()
        with pytest.raises(UpstreamRecreated):
            rows_of(driver.source, foreign)


def test_a_damaged_manifest_or_file_is_told(tmp_path: Path) -> None:
    driver = bound_three(tmp_path)
    manifest, rows = log_of(tmp_path) / "000000000001.json", next(log_of(tmp_path).glob("000000000001-*.parquet"))
    whole = rows.read_bytes()
    rows.write_bytes(whole[:-1])
    with pytest.raises(PollDamaged, match="and had"):
        driver.rows()
    rows.write_bytes(bytes(len(whole)))
    with pytest.raises(PollDamaged):
        driver.rows()
    rows.write_bytes(whole)
    write_durably(manifest, manifest.read_bytes().replace(b'"poll": 1', b'"poll": 7'))
    with pytest.raises(PollDamaged, match="digest"):
        driver.rows()


def test_a_new_incarnation_begins_without_a_state_in_a_log_of_its_own(tmp_path: Path) -> None:
    upstream = Pages(rows=[1, 2, 3])
    driver = Driver(polling(tmp_path, upstream))
    driver.poll()
    again = Driver(driver.source, bound=Bound(incarnation=1))
    again.poll()
    assert numbers(again) == [1, 2, 3]
    assert upstream.calls == [None, None]


def test_o7_a_state_that_is_no_functions_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upstream = Pages(rows=[1])
    known = SourceState(kind="odf/etag", source_id="odf/polling", value="A")
    driver = Driver(polling(tmp_path, upstream), bound=Bound(state=known))
    driver.poll()
    assert upstream.calls[0] is None
    assert "odf/etag" in caplog.text
    assert driver.bound.state is not None
    assert driver.bound.state.kind == "tidegauge/function"


def test_files_of_drivers_that_died_are_cleared_away_and_no_others(tmp_path: Path) -> None:
    driver = bound_three(tmp_path)
    named = sorted(log_of(tmp_path).glob("*.parquet"))
    litter, coming = (
        log_of(tmp_path) / f"{1:012}-{'0' * 32}.parquet",
        log_of(tmp_path) / f"{3:012}-{'0' * 32}.parquet",
    )
    for path in (litter, coming):
        path.write_bytes(b"half")
    Driver(driver.source, bound=driver.bound).look()
    assert sorted(log_of(tmp_path).glob("*.parquet")) == sorted([*named, coming])


HALF_DAY = timedelta(hours=12)


def is_tiny(offset: timedelta) -> bool:
    return bool(offset) and abs(offset) < timedelta(seconds=1)


STATES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.dates()
    | st.timedeltas()
    | st.datetimes(
        timezones=st.none() | st.timedeltas(-HALF_DAY, HALF_DAY).filter(lambda one: not is_tiny(one)).map(timezone)
    ).map(lambda moment: moment.replace(fold=0)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.binary(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def typed(value: Any) -> Any:
    """A value with its types, in which one NaN is as good as another."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, dict):
        return ("dict", [(typed(key), typed(one)) for key, one in value.items()])
    if isinstance(value, list | tuple):
        return (type(value).__name__, [typed(one) for one in value])
    if isinstance(value, datetime):
        return ("datetime", value.isoformat())
    return (type(value).__name__, value)


@given(STATES)
def test_a_state_comes_back_with_its_types(state: Any) -> None:
    assert typed(decoded(encoded(state))) == typed(state)


@pytest.mark.parametrize(
    ("moment", "problem"),
    [
        (datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), "a time zone of type ZoneInfo"),
        (NOW.replace(fold=1), "the second of two times"),
        (NOW.replace(tzinfo=timezone(timedelta(microseconds=-1))), "an offset of less than a second"),
    ],
)
def test_a_time_that_would_come_back_as_another_is_no_state(moment: datetime, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        encoded([moment])


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"columns": None}, InvalidArgument),
        ({"every": 0}, InvalidArgument),
        ({"timeout": -1}, InvalidArgument),
        ({"merge": "replace"}, InvalidArgument),
        ({"merge": "ledger"}, InvalidArgument),
        ({"merge": "ledger", "key": "m"}, InvalidArgument),
        ({"key": "n"}, InvalidArgument),
        ({"columns": "n long, _op string", "merge": "upsert", "key": "n"}, ReservedColumn),
        ({"columns": "n long, _epoch long"}, ReservedColumn),
        ({"columns": "n double", "merge": "ledger", "key": "n"}, InvalidArgument),
        ({"staging": "hdfs://bucket/polls"}, PollsElsewhere),
        ({"staging": ""}, InvalidArgument),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_said(tmp_path: Path, given: Any, error: type[TidegaugeError]) -> None:
    with pytest.raises(error):
        polling(tmp_path, Pages(), **given)
    with pytest.raises(InvalidArgument):
        polling(tmp_path, 7)
