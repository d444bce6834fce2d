"""A driver mints whenever it likes, also between two questions of somebody who looks at the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tidegauge as tg
from tidegauge.errors.command import EpochNotBound
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A flow with one epoch, whose driver mints the next one right after each time that somebody has loaded it."""
    store = Store.open(f"sqlite:///{tmp_path}/store.db", env=tg.Env())
    lease = store.acquire("shop", holder=LeaseHolder.current(tg.Env()))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={})

    def mint() -> None:
        epoch = loading(store, "shop").flow.upper
        proposal = Proposal(frontier=Frontier({"p0": epoch + 1}))
        store.append(lease, expected=epoch, at=datetime.now(UTC), proposals={"orders": proposal})

    def load(looking: Store, name: str) -> Any:
        loaded = loading(looking, name)
        mint()
        return loaded

    loading = Store.load
    mint()
    monkeypatch.setattr(Store, "load", load)
    yield tg.Dataflow("shop", store=store.url)
    store.close()


def test_the_timeline_is_that_of_one_instant(flow: Any) -> None:
    assert [(record.epoch, dict(sizes)) for record, sizes in tg.epochs(flow)] == [(0, {"orders": 1})]
    assert [record.epoch for record, _sizes in tg.epochs(flow, limit=1)] == [1]
    assert [record.epoch for record, _sizes in tg.epochs(flow, first=1, last=7)] == [1, 2]


def test_an_epoch_that_was_minted_a_moment_later_is_not_bound_yet(flow: Any) -> None:
    with pytest.raises(EpochNotBound):
        tg.explain(flow, 1)
