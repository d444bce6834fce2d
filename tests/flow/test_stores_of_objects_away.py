"""A bucket that is gone, credentials that expired, a store that is away: a named state of that output alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.flow.badinput import LINE, lines, numbers, write
from tests.flow.by_hand import Run, World
from tests.s3 import Lake
from tests.s3_proxy import Fault, Proxy
from tests.sinks.iceberg.stored import POND, configured

import tidegauge as tg
from tidegauge.objects.path import ObjectPath

pytestmark = pytest.mark.long


def iceberg(path: str) -> tg.IcebergSink:
    return tg.IcebergSink("shop.far", path, catalog=POND)


@pytest.fixture(params=[tg.DeltaSink, tg.ParquetSink, iceberg])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, lake: Lake, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> World:
    configured(monkeypatch, tmp_path, proxy.url)

    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = flow.source("orders", tg.FileSource(f"{world.root}/in/*", format=tg.Json(LINE)))
        flow.sink("far", orders, request.param(lake.at("far")))
        flow.sink("near", orders, tg.DeltaSink(f"{world.root}/near"))
        return flow

    return World(tmp_path, make)


def broken(proxy: Proxy, kind: str) -> Callable[[], None]:
    """Break all that is asked from now on; return what ends it."""
    proxy.faults.extend(Fault(kind, method, "", times=10**6) for method in ("GET", "PUT", "HEAD", "POST", "DELETE"))
    return proxy.faults.clear


def without_bucket(lake: Lake) -> Callable[[], None]:
    """Remove the bucket; return what brings it back as it was."""
    place = ObjectPath.of(lake.at("far"))
    kept = {path: (place / path).read_bytes() for path in place.below()}
    lake.server.drop(lake.bucket)

    def back() -> None:
        assert lake.server.request("PUT", f"/{lake.bucket}") == 200
        for path, data in kept.items():
            (place / path).put(data)

    return back


@pytest.mark.parametrize(
    ("trouble", "code"), [("bucket", "TG-0580"), ("expired", "TG-0581"), ("cut before", "TG-0582")]
)
@pytest.mark.parametrize("restart", [False, True])
def test_it_is_a_named_state_of_that_output_alone_which_goes_on_once_it_is_over(
    world: World, lake: Lake, proxy: Proxy, trouble: str, code: str, restart: bool
) -> None:
    run = world.start()
    count = added(world, run, 0, 2)
    over = without_bucket(lake) if trouble == "bucket" else broken(proxy, trouble)
    if restart:
        run.abandon()
        run = world.start()
    for _ in range(4):
        write(world.root / "in" / "1.jsonl", lines(count))
        count += 1
        run.step(1.0)
    far, near = run.runner.board.outputs["far"], run.runner.board.outputs["near"]
    assert (far.state, getattr(far.error, "code", far.error)) == ("stalled", code)
    assert near.state == "live", (near.error, far.error)
    assert near.upper == run.runner.board.upper > far.upper
    assert "hunter2" not in str(far.error)
    over()
    run.catch_up()
    assert [sorted(numbers(world.make(world), name)) for name in ("far", "near")] == [list(range(count))] * 2
    run.abandon()


def added(world: World, run: Run, first: int, epochs: int) -> int:
    for number in range(first, first + epochs):
        write(world.root / "in" / "1.jsonl", lines(number))
        run.catch_up()
    return first + epochs


# -- sources


@pytest.fixture
def reading(tmp_path: Path, lake: Lake) -> World:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        for name, path in (("far", lake.at("far/*")), ("near", f"{world.root}/near/*")):
            rows = flow.source(name, tg.FileSource(path, format=tg.Json(LINE)))
            flow.sink(name, rows, tg.DeltaSink(f"{world.root}/lake/{name}"))
        return flow

    return World(tmp_path, make)


def landed(world: World, lake: Lake, number: int) -> None:
    """A new object, and a line more on the disk."""
    (ObjectPath.of(lake.at("far")) / f"{number}.jsonl").put(lines(number).encode())
    write(world.root / "near" / "1.jsonl", lines(number))


@pytest.mark.parametrize(
    ("trouble", "code"), [("bucket", "TG-0580"), ("expired", "TG-0581"), ("cut before", "TG-0582")]
)
@pytest.mark.parametrize("restart", [False, True])
def test_a_source_waits_alone_and_goes_on_once_it_is_over(
    reading: World, lake: Lake, proxy: Proxy, trouble: str, code: str, restart: bool
) -> None:
    run = reading.start()
    for count in range(2):
        landed(reading, lake, count)
        run.catch_up()
    landed(reading, lake, 2)
    over = without_bucket(lake) if trouble == "bucket" else broken(proxy, trouble)
    if restart:
        run.abandon()
        run = reading.start()
    for number in range(2, 5):
        write(reading.root / "near" / "1.jsonl", lines(number + 1))
        run.step(1.0)
    board = run.runner.board
    assert (board.sources["far"].state, board.sources["near"].state) == ("stalled", "running")
    assert getattr(board.sources["far"].error, "code", "") == code
    assert "hunter2" not in str(board.sources["far"].error)
    assert sorted(numbers(reading.make(reading), "near")) == list(range(6))
    over()
    landed(reading, lake, 6)
    run.step(60.0)
    run.catch_up()
    assert sorted(numbers(reading.make(reading), "far")) == [0, 1, 2, 6]
    run.abandon()


def test_an_overwritten_object_fails_its_source_alone_until_it_is_put_back(reading: World, lake: Lake) -> None:
    run = reading.start()
    landed(reading, lake, 0)
    run.catch_up()
    (ObjectPath.of(lake.at("far")) / "0.jsonl").put(lines(7).encode())
    write(reading.root / "near" / "1.jsonl", lines(1))
    for _ in range(4):
        run.step(1.0)
    board = run.runner.board
    assert (board.sources["far"].state, board.sources["near"].state) == ("failed", "running")
    assert getattr(board.sources["far"].error, "code", "") == "TG-0586"
    assert sorted(numbers(reading.make(reading), "near")) == [0, 1]
    run.abandon()
    (ObjectPath.of(lake.at("far")) / "0.jsonl").put(lines(0).encode())
    tg.resume(reading.make(reading), source="far")
    landed(reading, lake, 2)
    run = reading.start()
    run.catch_up()
    assert sorted(numbers(reading.make(reading), "far")) == [0, 2]
    run.abandon()
