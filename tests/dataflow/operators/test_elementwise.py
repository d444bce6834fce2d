"""Map, filter, flat_map, concat, inspect: what comes out, and which object it is. Cases C38 to C40 and C42."""

from __future__ import annotations

from typing import Any

from tests.dataflow.operators.programs import delay, run

from tidegauge.dataflow import Antichain, Scope, Stream, records


def numbers(scope: Scope, upper: int) -> Stream[Any]:
    return scope.to_stream([list(range(upper))])


def test_c38_concat_with_itself_and_flat_map() -> None:
    def twice(scope: Scope) -> Stream[Any]:
        stream = numbers(scope, 3)
        return stream.concat(stream)

    assert sorted(n for _, batch in run(twice) for n in batch) == [0, 0, 1, 1, 2, 2]
    [(_, below)] = run(lambda scope: numbers(scope, 4).map(records.flat_map(range)))
    assert sorted(below) == [0, 0, 0, 1, 1, 2]


def test_c39_results_are_tagged_records() -> None:
    """There are no operators for results: a tag, and functions of it, do the same."""

    def mapped(function: Any) -> Any:
        [(_, batch)] = run(lambda scope: scope.to_stream([[("ok", 0), ("err", ())]]).map(function))
        return batch

    def on(tag: str, function: Any) -> Any:
        return records.map(lambda result: function(result[1]) if result[0] == tag else result)

    assert mapped(records.filter(lambda r: r[0] == "ok").map(lambda r: r[1])) == [0]
    assert mapped(records.filter(lambda r: r[0] == "err").map(lambda r: r[1])) == [()]
    assert mapped(on("ok", lambda _: ("ok", 10))) == [("ok", 10), ("err", ())]
    assert mapped(on("err", lambda _: ("err", 10))) == [("ok", 0), ("err", 10)]
    assert mapped(on("ok", lambda _: ("ok", 1))) == [("ok", 1), ("err", ())]
    assert mapped(records.map(lambda r: r[1] if r[0] == "ok" else 10)) == [0, 10]


def test_c40_a_chain_of_records_is_one_operator() -> None:
    plus: records.RecordFunction[int, int] = records.map(lambda n: n + 1)
    four = plus.map(lambda n: n + 1).map(lambda n: n + 1).map(lambda n: n + 1)
    assert run(lambda scope: numbers(scope, 10).map(four)) == [(0, [*range(4, 14)])]


def test_c40_all_readers_of_a_stream_see_one_object() -> None:
    seen: list[Any] = []

    def program(scope: Scope) -> Stream[Any]:
        stream = numbers(scope, 10)
        for _ in range(2):
            stream.inspect(lambda _, batch: seen.append(batch))
        return stream

    [(_, batch)] = run(program)
    assert [one is batch for one in seen] == [True, True]


def test_c42_batches_and_frontiers_are_seen_in_one_sequence() -> None:
    seen: list[Any] = []

    def program(scope: Scope) -> Stream[Any]:
        later = delay(numbers(scope, 4), lambda n, _: n // 2)
        return later.inspect(
            lambda stamp, batch: seen.append((stamp[0], batch)), frontier=lambda now: seen.append(now.elements())
        )

    run(program)
    assert seen == [(0, [0, 1]), (1, [2, 3]), ()]


def test_a_frontier_is_told_before_what_came_with_it(worker: Any) -> None:
    seen: list[Any] = []
    with worker.dataflow("flow") as scope:
        feed, stream = scope.input("input")
        stream.inspect(lambda stamp, batch: seen.append((*stamp, batch)), frontier=seen.append)
    worker.step()
    assert seen == []
    feed.send("a")
    worker.step()
    feed.advance_to(3)
    feed.send("b")
    worker.step()
    worker.step()
    feed.close()
    while worker.step():
        pass
    assert seen == [(0, "a"), (3, "b"), Antichain([3]), Antichain()]
