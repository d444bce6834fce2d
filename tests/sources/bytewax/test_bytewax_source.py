"""Items of bytewax's sources are staged once and in the order of their partitions, whatever these do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from bytewax.connectors.files import CSVSource, DirSource, FileSource
from bytewax.testing import TestingSource
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.bytewax.connectors import Blocked, Numbers, Radio, until
from tests.sources.polls.polling import NOW, Driver

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.bytewax import (
    ConnectorUnfit,
    ItemUnfit,
    PartitionBlocked,
    PartitionRaised,
    PartitionStateNotKept,
)
from tidegauge.errors.flow import InvalidArgument, ReservedColumn
from tidegauge.errors.polls import PollsElsewhere, PollUnfit
from tidegauge.remap.fromtime import SourceState
from tidegauge.sources.bytewax import pulling
from tidegauge.sources.bytewax.fetching import KIND, BytewaxFetch
from tidegauge.sources.polls.log import PollLog

Begin = Callable[..., Driver]


def as_number(item: Any) -> dict[str, Any]:
    return {"n": item}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begins a run over a connector, with what an earlier one has bound."""
    drivers = list[Driver]()

    def start(connector: Any, *, after: Driver | None = None, **given: Any) -> Driver:
        told = {"columns": "n long", "staging": tmp_path / "staged", "row": as_number, **given}
        driver = Driver(tg.BytewaxSource(connector, **told), bound=after.bound if after else None)
        drivers.append(driver)
        return driver

    yield start
    for driver in drivers:
        driver.poller.close()


def numbers(driver: Driver) -> list[Any]:
    """Return the one column of what is bound."""
    return [value for row in driver.rows() for value in row.values()]


def catch_up(driver: Driver, count: int) -> list[Any]:
    """Bind until so many rows are in."""

    def enough() -> bool:
        driver.poll()
        return len(driver.rows()) >= count

    until(enough)
    return numbers(driver)


def parts_of(driver: Driver) -> Any:
    assert driver.bound.state is not None
    value: Any = driver.bound.state.value
    return value["parts"]


def test_each_item_comes_once_in_the_order_of_its_partition(begin: Begin) -> None:
    source = Numbers({"a": [1, 2, 3, 4, 5], "b": [10, 20, 30]})
    driver = begin(source)
    found = catch_up(driver, 8)
    assert [n for n in found if n < 10] == [1, 2, 3, 4, 5]
    assert [n for n in found if n >= 10] == [10, 20, 30]
    assert parts_of(driver) == [["a", 5, 5], ["b", 3, 3]]
    source.parts["a"] += [6]
    assert sorted(catch_up(driver, 9)) == [1, 2, 3, 4, 5, 6, 10, 20, 30]
    assert sorted(source.built) == [("a", None), ("b", None)]


def test_a_run_goes_on_from_the_states_that_are_bound(begin: Begin) -> None:
    source = Numbers({"a": [1, 2, 3], "b": [10]})
    first = begin(source)
    catch_up(first, 4)
    first.poller.close()
    source.parts = {"a": [1, 2, 3, 4], "b": [10, 20]}
    source.built.clear()
    assert sorted(catch_up(begin(source, after=first), 6)) == [1, 2, 3, 4, 10, 20]
    assert sorted(source.built) == [("a", 3), ("b", 1)]


def test_what_is_staged_is_never_read_again(begin: Begin) -> None:
    source = Numbers({"a": [1, 2, 3]})
    died = begin(source)
    until(lambda: died.look().upper["polls"] > 0)  # staged, and never bound
    until(lambda: not died.look().coming)
    died.poller.close()
    source.built.clear()
    driver = begin(source)
    assert catch_up(driver, 3) == [1, 2, 3]
    driver.poll()
    assert source.built == [("a", 3)]


@pytest.mark.parametrize(
    ("shape", "place"),
    [
        (lambda at: None if at == 0 else at, lambda state: state or 0),
        (lambda at: b"%d\xff" % at, lambda state: int(state[:-1])),
        (lambda at: {"at": (at, 2**70 + at, 1.5)}, lambda state: state["at"][1] - 2**70),
        (lambda at: NOW + timedelta(days=at), lambda state: (state - NOW).days),
        (lambda at: [[str(at)], True], lambda state: int(state[0][0])),
    ],
)
def test_states_of_any_kept_type_come_back_as_they_were(begin: Begin, shape: Any, place: Any) -> None:
    source = Numbers({"a": [1, 2, 3]}, shape=shape, place=place)
    first = begin(source)
    catch_up(first, 3)
    first.poller.close()
    source.parts["a"] += [4, 5]
    source.built.clear()
    assert catch_up(begin(source, after=first), 5) == [1, 2, 3, 4, 5]
    [(name, state)] = source.built
    assert (name, type(state), state) == ("a", type(shape(3)), shape(3))


def test_a_state_that_would_have_to_be_pickled_is_refused_by_name(begin: Begin) -> None:
    driver = begin(Numbers({"a": [1]}, shape=lambda at: {"at": object()}))
    with pytest.raises(PartitionStateNotKept, match=r"partition 'a' of Numbers .* state\['at'\] is of type object"):
        until(lambda: driver.poll() and False)
    assert not driver.bound.frontier


def test_a_partition_that_was_away_goes_on_where_it_was_and_a_new_one_begins(begin: Begin) -> None:
    source = Numbers({"a": [1, 2], "b": [10]})
    first = begin(source)
    catch_up(first, 3)
    first.poller.close()
    source.parts = {"b": [10], "c": [100]}
    second = begin(source, after=first)
    assert sorted(catch_up(second, 4)) == [1, 2, 10, 100]
    assert parts_of(second) == [["a", 2, 2], ["b", 1, 1], ["c", 1, 1]]
    second.poller.close()
    source.parts = {"a": [1, 2, 3], "c": [100]}
    assert sorted(catch_up(begin(source, after=second), 5)) == [1, 2, 3, 10, 100]


def test_a_partition_that_blocks_keeps_no_other_from_going_on(begin: Begin) -> None:
    blocked = Blocked("a", 2)
    source = Numbers({"a": [1, 2, 3], "b": [10, 20, 30]}, wrong=blocked)
    driver = begin(source, timeout=0.3)
    try:
        until(lambda: _given(driver, 5))
        assert sorted(numbers(driver)) == [1, 2, 10, 20, 30]
        with pytest.raises(PartitionBlocked, match="partition 'a' of Numbers has not returned from next_batch"):
            until(lambda: _given(driver, 6))
        source.parts["b"] += [40]
        until(lambda: _given(driver, 6, may=PartitionBlocked))
    finally:
        blocked.gate.set()
    until(lambda: _given(driver, 7, may=PartitionBlocked))
    assert sorted(numbers(driver)) == [1, 2, 3, 10, 20, 30, 40]


def test_a_partition_that_blocks_beside_lively_ones_is_noted(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    blocked = Blocked("a", 2)
    source = Numbers({"a": [1, 2, 3], "b": [10], "c": [100]}, wrong=blocked)
    driver = begin(source, timeout=0.3)

    def noted() -> str | None:
        """Return the note of a look that found rows, None where there were none."""
        source.parts["b"] += [11]
        driver.clock.now += 400
        with suppress(PartitionBlocked):
            if (seen := driver.look()).upper != driver.bound.frontier:
                driver.bind(seen)
                return seen.note
        return None

    try:
        until(lambda: "partition 'a' of Numbers has not returned from next_batch" in (noted() or ""))
        until(lambda: "(TG-0981)" in (noted() or ""))
    finally:
        blocked.gate.set()
    until(lambda: noted() == "")
    assert [one.message.count("[TG-0981]") for one in caplog.records if "partition 'a'" in one.message] == [1]


def _given(driver: Driver, count: int, *, may: type[Exception] | None = None) -> bool:
    """Look once, and bind; whether so many rows are in. may: an error that a look may raise."""
    driver.clock.now += 400
    try:
        driver.bind(driver.look())
    except Exception as error:
        if may is None or not isinstance(error, may):
            raise
        return False
    return len(driver.rows()) >= count


class Closed(list[str]):
    """Names of partitions that raise when they are closed."""

    def __init__(self, error: type[BaseException] | None) -> None:
        super().__init__()
        self.error = error

    def append(self, name: str) -> None:
        super().append(name)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("closing", [None, ValueError, SystemExit])
def test_a_partition_that_raises_is_built_again_from_its_last_batch(
    begin: Begin, closing: type[BaseException] | None
) -> None:
    left = [2]

    def wrong(name: str, at: int) -> None:
        if (name, at) == ("a", 2) and left[0]:
            left[0] -= 1
            raise ConnectionError("upstream hung up")

    source = Numbers({"a": [1, 2, 3, 4], "b": [10]}, wrong=wrong, closed=Closed(closing))
    driver = begin(source)
    seen = list[PartitionRaised]()

    def enough() -> bool:
        try:
            return _given(driver, 5)
        except PartitionRaised as error:
            seen.append(error)
            return False

    until(enough)
    assert sorted(numbers(driver)) == [1, 2, 3, 4, 10]
    assert "partition 'a' of Numbers raised in next_batch: ConnectionError: upstream hung up" in seen[0].summary
    assert [state for name, state in source.built if name == "a"] == [None, 2, 2]


def test_an_aborted_execution_is_tried_again_from_the_last_state(begin: Begin) -> None:
    items = [1, 2, TestingSource.ABORT(), 3]
    driver = begin(TestingSource(items))

    with pytest.raises(PartitionRaised, match="AbortExecution"):
        until(lambda: _given(driver, 3))
    until(lambda: _given(driver, 3, may=PartitionRaised))
    assert numbers(driver) == [1, 2, 3]


def test_a_partition_at_its_end_is_read_on_by_the_next_run(begin: Begin) -> None:
    items = [1, 2, TestingSource.EOF(), 3, TestingSource.EOF(), 4]
    first = begin(TestingSource(items))
    assert catch_up(first, 2) == [1, 2]
    assert not first.poll()
    first.poller.close()
    second = begin(TestingSource(items), after=first)
    assert catch_up(second, 3) == [1, 2, 3]
    second.poller.close()
    assert catch_up(begin(TestingSource(items), after=second), 4) == [1, 2, 3, 4]


def test_a_partition_is_not_asked_before_it_is_to_wake(begin: Begin) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    source = Numbers({"a": [1], "b": [10]}, awake=lambda name: later if name == "a" else None)
    driver = begin(source)
    assert catch_up(driver, 1) == [10]
    assert not driver.poll()
    assert {name for name, _ in source.calls} == {"b"}
    waking = datetime.now(UTC) + timedelta(seconds=0.3)
    times = dict[str, datetime]()

    def wrong(name: str, at: int) -> None:
        times.setdefault(name, datetime.now(UTC))

    second = Numbers({"a": [1]}, awake=lambda name: waking, wrong=wrong)
    assert catch_up(begin(second, staging=f"{driver.source.staging}2"), 1) == [1]
    assert times["a"] >= waking


def test_a_partition_that_is_closed_is_closed_in_its_own_thread_after_its_call(begin: Begin) -> None:
    blocked = Blocked("a", 2)
    source = Numbers({"a": [1, 2, 3], "b": [10]}, wrong=blocked)
    driver = begin(source, timeout=0.3)
    until(lambda: _given(driver, 3, may=PartitionBlocked))
    assert blocked.reached.wait(30)
    driver.poller.close()
    until(lambda: "b" in source.closed)
    assert "a" not in source.closed
    blocked.gate.set()
    until(lambda: "a" in source.closed)


@pytest.mark.parametrize(
    ("items", "row", "error", "match"),
    [
        ([1], None, ItemUnfit, "it is of type int, and a dict is expected"),
        ([1], lambda item: [item], ItemUnfit, "row= returned it, and it is of type list"),
        ([1], lambda item: item["n"], ItemUnfit, "row= raised TypeError"),
        ([{"n": "one"}], None, PollUnfit, "column n"),
        ([{"m": 1}], None, PollUnfit, "none of its columns is declared"),
    ],
)
def test_what_is_no_row_is_named_and_nothing_of_it_is_staged(
    begin: Begin, tmp_path: Path, items: Any, row: Any, error: type[TidegaugeError], match: str
) -> None:
    source = Numbers({"a": items})
    driver = begin(source, row=row)
    with pytest.raises(error, match=match):
        until(lambda: _given(driver, 1))
    assert not list((tmp_path / "staged").rglob("*.json"))
    driver.poller.close()
    corrected = begin(source, row=lambda item: {"n": 7}, after=driver)
    assert catch_up(corrected, 1) == [7]


def test_a_full_disk_costs_no_item_of_a_source_that_cannot_give_it_again(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, left = PollLog.publish, [3]

    def full(self: PollLog, *args: Any, **given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        return publish(self, *args, **given)

    monkeypatch.setattr(PollLog, "publish", full)
    radio = Radio([1, 2, 3])
    driver = begin(radio)

    until(lambda: _given(driver, 3, may=OSError))
    assert numbers(driver) == [1, 2, 3]
    assert (left, radio.built) == ([0], 1)


def test_an_error_that_passes_is_waited_for_a_second_also_where_a_partition_has_long_been_quiet(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a search through simulated worlds: the quiet partition's errors had made the wait grow."""
    blocked = Blocked("a", 0)
    source = Numbers({"a": [1], "b": []}, wrong=blocked)
    driver = begin(source, timeout=0.3)
    publish, left = PollLog.publish, [1]

    def full(self: PollLog, *args: Any, **given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        return publish(self, *args, **given)

    def rows() -> int:
        with suppress(PartitionBlocked):
            driver.bind(driver.look())
        return len(driver.rows())

    monkeypatch.setattr(PollLog, "publish", full)
    try:
        for _ in range(12):
            with pytest.raises(PartitionBlocked):
                until(lambda: driver.bind(driver.look()) and False)
        source.parts["b"] += [10]
        with pytest.raises(OSError, match="No space left"):
            until(lambda: rows() > 0)
        driver.clock.now += 1.0
        until(lambda: rows() > 0)
    finally:
        blocked.gate.set()


def test_a_dynamic_source_gives_what_is_on_air_and_has_no_state(begin: Begin) -> None:
    radio = Radio([1, 2])
    first = begin(radio)
    assert catch_up(first, 2) == [1, 2]
    [[name, _run, items]] = parts_of(first)
    assert (name, items) == ("worker", 2)
    first.poller.close()
    radio.air += [3]
    assert catch_up(begin(radio, after=first), 3) == [1, 2, 3]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_a_run_took_of_a_queue_is_given_again_where_another_was_ahead_of_it(count: int) -> None:
    """Found by a search through simulated worlds. The other run has staged as many items, or more, or fewer."""
    radio = Radio([1, 2])

    given: Any = {"source": "it", "stateful": False, "step": "it", "columns": pa.schema([("n", pa.int64())])}
    fetch = BytewaxFetch(connector=radio, row=as_number, timeout=60.0, run="mine", **given)
    until(lambda: (mine := fetch(None)) is not None and mine.rows["n"].to_pylist() == [1, 2])
    other = SourceState(kind=KIND, source_id="it", value={"parts": [["worker", "other", count]]})
    radio.air += [3]
    until(lambda: (mine := fetch(other)) is not None and mine.rows["n"].to_pylist() == [1, 2, 3])
    fetch.close()
    assert radio.built == 1


def test_items_that_row_leaves_out_move_the_state_alone(begin: Begin) -> None:
    source = Numbers({"a": [1, 2]})
    driver = begin(source, row=lambda item: None)

    def bound() -> bool:
        driver.poll()
        return driver.bound.state is not None and parts_of(driver) == [["a", 2, 2]]

    until(bound)
    assert not driver.bound.frontier


def test_a_partition_that_nobody_takes_from_is_left_alone(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "ROOM", 10)
    source = Numbers({"a": [*range(1000)]}, size=2)
    driver = begin(source, row=lambda item: 1 / 0)
    for _ in range(3):
        with pytest.raises(ItemUnfit):
            until(lambda: _given(driver, 1))
    until(lambda: len(source.calls) == 5)
    with pytest.raises(ItemUnfit):
        until(lambda: _given(driver, 1))
    assert len(source.calls) == 5


def test_a_partition_that_waited_for_room_is_not_taken_for_one_that_has_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulling, "ROOM", 4)
    source = Numbers({"a": [*range(1500)]}, ends=True)
    fetch = BytewaxFetch(
        source="it",
        connector=source,
        stateful=True,
        step="it",
        columns=pa.schema([("n", pa.int64())]),
        row=as_number,
        timeout=60.0,
        run="r",
    )
    found, state = list[int](), None
    while (brought := fetch(state)) is not None:
        found, state = found + brought.rows["n"].to_pylist(), brought.state
    assert found == [*range(1500)]


@pytest.mark.parametrize(
    ("names", "problem"),
    [(["a", "a"], "has 'a' twice"), (["a", 7], "has 7, which is no str"), (None, "raised TypeError")],
)
def test_partitions_that_cannot_be_told_apart_are_refused(begin: Begin, names: Any, problem: str) -> None:
    source = Numbers({"a": [1]})
    source.list_parts = lambda: names  # type: ignore[method-assign]
    with pytest.raises(ConnectorUnfit, match=problem):
        begin(source).poll()


def test_bytewax_s_own_files_come_once_and_go_on_where_they_grew(begin: Begin, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.txt").write_text("".join(f"{name}{i}\n" for i in range(2500)))
    given = {"columns": "line string", "row": lambda line: {"line": line}}
    first = begin(DirSource(folder, batch_size=700), **given)
    catch_up(first, 5000)
    first.poller.close()
    with open(folder / "a.txt", "a") as file:
        file.write("a2500\n")
    second = begin(DirSource(folder, batch_size=700), after=first, **given)
    lines = catch_up(second, 5001)
    assert [line for line in lines if line[0] == "a"] == [f"a{i}" for i in range(2501)]
    assert [line for line in lines if line[0] == "b"] == [f"b{i}" for i in range(2500)]


def test_bytewax_s_csv_gives_dicts_that_row_makes_rows_of(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("n,name\n1,ada\n2,bob\n")
    driver = begin(CSVSource(tmp_path / "in.csv"), row=lambda item: {"n": int(item["n"])})
    assert catch_up(driver, 2) == [1, 2]


def test_tables_of_arrow_are_as_many_rows_as_they_have(begin: Begin) -> None:
    tables = [pa.table({"n": [1, 2]}), pa.record_batch({"n": [3]}), {"n": 4}]
    driver = begin(TestingSource(tables, batch_size=3), row=None)
    assert catch_up(driver, 4) == [1, 2, 3, 4]


def test_a_state_of_another_kind_is_read_over(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    source = Numbers({"a": [1]})
    driver = begin(source)
    driver.bound = type(driver.bound)(state=SourceState(kind="odf/etag", source_id="x", value="e"))
    assert catch_up(driver, 1) == [1]
    assert "its state of kind odf/etag is not bytewax's" in caplog.text


@given(st.data())
def test_runs_that_die_anywhere_give_every_item_once(data: st.DataObject) -> None:
    with TemporaryDirectory() as root:
        _lives(data, root)


def _lives(data: st.DataObject, root: str) -> None:
    parts = {name: [f"{name}{i}" for i in range(data.draw(st.integers(0, 20)))] for name in "abc"}
    source = Numbers(parts, size=data.draw(st.integers(1, 7)), ends=data.draw(st.booleans()))
    told: Any = {"columns": "s string", "staging": root, "row": lambda item: {"s": item}}
    bound = None
    for steps in data.draw(st.lists(st.integers(0, 4), max_size=4)):
        driver = Driver(tg.BytewaxSource(source, **told), bound=bound)
        with closing(driver.poller):
            for step in range(steps):
                seen = driver.look()
                if step % 2:
                    driver.bind(seen)
        bound = driver.bound
    driver = Driver(tg.BytewaxSource(source, **told), bound=bound)
    with closing(driver.poller):
        rows = catch_up(driver, sum(map(len, parts.values())))
        driver.poll()
    assert rows == numbers(driver)
    assert {name: [row for row in rows if row[0] == name] for name in "abc"} == parts


def test_the_source_travels_without_its_connector(begin: Begin, tmp_path: Path) -> None:
    source = tg.BytewaxSource(
        FileSource(tmp_path / "a"), columns="n long", staging=tmp_path, row=lambda item: {"n": item}
    ).placed("shop", "orders")
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert copy.describe() == source.describe()
    assert b"FileSource(" not in pickle.dumps(source)
    assert (copy.connector, copy.row) == (None, None)
    with pytest.raises(InvalidArgument, match="a copy that was pickled"):
        copy.attended(tg.Env())


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"columns": None}, InvalidArgument),
        ({"timeout": 0}, InvalidArgument),
        ({"row": 7}, InvalidArgument),
        ({"columns": "n long, _epoch long"}, ReservedColumn),
        ({"staging": "hdfs://bucket/staged"}, PollsElsewhere),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_said(tmp_path: Path, given: Any, error: type[TidegaugeError]) -> None:
    told = {"columns": "n long", "staging": tmp_path, **given}
    with pytest.raises(error):
        tg.BytewaxSource(Numbers({}), **told)
    with pytest.raises(InvalidArgument, match="FixedPartitionedSource or DynamicSource"):
        tg.BytewaxSource([1, 2], columns="n long", staging=tmp_path)
