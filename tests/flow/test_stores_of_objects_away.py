"""A bucket that is gone, credentials that expired, a store that is away: a named state of that output alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.flow.badinput import LINE, lines, numbers, write
from tests.flow.by_hand import Run, World
from tests.s3 import Lake
from tests.s3_proxy import Fault, Proxy

import tidegauge as tg
from tidegauge.objects.path import ObjectPath

pytestmark = pytest.mark.long


@pytest.fixture
def world(tmp_path: Path, lake: Lake) -> World:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = flow.source("orders", tg.FileSource(f"{world.root}/in/*", format=tg.Json(LINE)))
        flow.sink("far", orders, tg.DeltaSink(lake.at("far")))
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
