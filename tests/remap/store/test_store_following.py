"""Following, as the store does it: any history of an owner, in pieces and with crashes, is the same here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.depth import examples

from tidegauge.env import Env
from tidegauge.errors.store import UpperMismatch
from tidegauge.remap.binding import Proposal
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.history import follow as digest_after
from tidegauge.remap.store import Followed, Following, Gap, Lease, LeaseHolder, Loaded, SourceSpec, Store
from tidegauge.remap.store import following as rows

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SHARED = Following("owner", {"mine": "a", "other": "b"})
CONFIGS: dict[str, dict[str, Any]] = {"mine": {"kind": "topic"}, "other": {}}

STEPS = st.one_of(
    st.tuples(st.just("bind"), st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3)),
    st.tuples(st.just("again"), st.sampled_from("ab")),
    st.tuples(st.just("lose"), st.sampled_from("ab")),
    st.tuples(st.just("seal"), st.sampled_from("bc")),
    st.tuples(st.just("compact"), st.integers(1, 6)),
    st.tuples(st.just("follow"), st.integers(1, 3)),
)


class Died(BaseException):
    """The driver of the follower."""


class Owner:
    """A flow of three sources whose history a test makes up."""

    def __init__(self, store: Store, env: Env) -> None:
        self.store, self.env = store, env
        self.lease = store.acquire("owner", holder=LeaseHolder.current(env))
        specs = {"a": SourceSpec({"kind": "topic"}), "b": SourceSpec({}), "c": SourceSpec({})}
        store.register(self.lease, sources=specs, outputs={})
        self.positions: dict[str, dict[str, int]] = {name: {} for name in "abc"}
        self.sealed: set[str] = set()
        self.upper = self.published = 0

    def bind(self, moves: dict[str, int]) -> None:
        proposals = {}
        for name, count in moves.items():
            if name in self.sealed:
                continue
            for n in range(count):
                self.positions[name][f"p{n}"] = self.positions[name].get(f"p{n}", 0) + n + 1
            proposals[name] = Proposal(
                frontier=Frontier(self.positions[name]),
                details={f"p{n}": {"path": f"{name}/{n}", "at": self.upper} for n in range(count + 1)},
                identity=f"{name} it is",
                state=SourceState(kind="t", source_id=name, value={"n": self.upper}) if name == "a" else None,
            )
        at = NOON + timedelta(seconds=self.upper)
        if self.upper == 1:
            self.store.record_schema(self.lease, "a", pa.schema([("n", pa.int64())]))
        self.upper = self.store.append(self.lease, expected=self.upper, at=at, proposals=proposals) + 1
        self.store.publish(self.lease, expected=self.published, upper=self.upper, at=at)
        self.published = self.upper

    def again(self, name: str) -> None:
        self.store.begin_incarnation(self.lease, name, at=NOON, reason="made again", identity=f"{name} {self.upper}")
        self.positions[name] = {}
        self.sealed.discard(name)

    def lose(self, name: str) -> None:
        if self.upper:
            gap = Gap(name, self.upper - 1, "p0", 0, 1, NOON, "TG-0554", "gone")
            self.store.record_gap(self.lease, gap)

    def seal(self, name: str) -> None:
        if name not in self.sealed:
            bound = Proposal(frontier=Frontier(self.positions[name], sealed=True))
            at = NOON + timedelta(seconds=self.upper)
            self.upper = self.store.append(self.lease, expected=self.upper, at=at, proposals={name: bound}) + 1
            self.sealed.add(name)

    def compact(self, back: int, furthest: int) -> None:
        since = min(self.published - back, furthest)
        if since > 0:
            self.store.advance_since(self.lease, since)


def of(loaded: Loaded, name: str) -> list[object]:
    """All that is known of a source but its configuration."""
    source = loaded.sources[name]
    since = loaded.flow.since
    return [
        [(one.epoch, one.partition, one.lower, one.upper) for one in source.slices(since, loaded.flow.upper)],
        source.table.frontier,
        {key: dict(detail) for key, detail in source.details.items()},
        source.identity if source.table.frontier or source.state else None,
        source.schema,
        source.state,
        [(one.number, max(one.began_at, since), one.identity) for one in source.incarnations],
        [(gap.epoch, gap.partition, gap.lower, gap.upper) for gap in loaded.gaps if gap.source == name],
        source.table.sealed_at,
    ]


def keep_up(store: Store, lease: Lease, *, pieces: int = 100) -> int:
    """Follow so many times, or until there is nothing more; return the upper."""
    owner, flow = store.flow("owner"), store.flow("follower")
    assert owner is not None
    assert flow is not None
    upper = flow.upper
    for _ in range(pieces):
        found = store.follow(lease, SHARED, expected=upper, incarnation=owner.incarnation, configs=CONFIGS)
        if not found.links:
            break
        whole(found)
        upper = found.links[-1].epoch + 1
    return upper


def whole(found: Followed) -> None:
    """See that the links are a chain."""
    before = found.before
    for link in found.links:
        if not link.whole:
            assert link.digest == digest_after(before, link.sources)
        before = link.digest


@settings(max_examples=examples(30))
@given(st.lists(STEPS, max_size=14), st.sampled_from([1, 2, 10_000]), st.data())
def test_whatever_an_owner_has_bound_is_bound_alike_by_its_follower(
    steps: list[tuple[str, Any]], most: int, data: st.DataObject
) -> None:
    struck = 0

    def strike(point: str) -> None:
        nonlocal struck
        if struck and point in ("before append bindings", "after append bindings"):
            struck -= 1
            if not struck:
                raise Died

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "LONGEST", most)
        url = f"sqlite:///{folder}/store.db"
        env, mine = Env(), Env(point=strike)
        first, second = Store.open(url, env=env), Store.open(url, env=mine)
        owner = Owner(first, env)
        lease = second.acquire("follower", holder=LeaseHolder.current(mine))
        specs = {"mine": SourceSpec(CONFIGS["mine"]), "other": SourceSpec({})}
        second.register(lease, sources=specs, outputs={})
        followed = 0
        for what, much in steps:
            if what == "compact":
                owner.compact(much, max(followed - 1, 0) if followed else 100)
            elif what == "follow":
                struck = data.draw(st.sampled_from([0, 0, 1, 2]))
                try:
                    followed = keep_up(second, lease, pieces=much)
                except Died:
                    flow = second.flow("follower")
                    assert flow is not None
                    followed = flow.upper
                struck = 0
            else:
                getattr(owner, what)(much)
        owner.bind({"a": 1})  # an incarnation begins with the next epoch, once that is bound
        keep_up(second, lease)
        there, here = first.load("owner"), second.load("follower")
        assert here.flow.upper == there.flow.upper
        for name, source in SHARED.sources.items():
            skip = 0 if here.flow.since == there.flow.since else 1  # pieces before either's `since` are one
            parts = slice(skip, 6 if skip else None)
            assert of(here, name)[parts] == of(there, source)[parts]
        minted = [one.minted_at for one in first.epochs("owner")]
        assert [one.minted_at for one in second.epochs("follower")] == minted
        links = second.history("follower", here.flow.since, here.flow.upper, whole=False).links
        for link, later in pairwise(links):
            assert later.follows(link.digest)
        first.close()
        second.close()


def both(url: str) -> tuple[Owner, Store, Lease]:
    env = Env()
    owner = Owner(Store.open(url, env=env), env)
    store = Store.open(url, env=env)
    lease = store.acquire("follower", holder=LeaseHolder.current(env))
    store.register(lease, sources={"mine": SourceSpec(CONFIGS["mine"]), "other": SourceSpec({})}, outputs={})
    return owner, store, lease


def test_a_call_whose_answer_was_lost_is_answered_again(opened: Callable[[], Store], url: str) -> None:
    owner, store, lease = both(url)
    owner.bind({"a": 2})
    owner.bind({"b": 1})
    record = owner.store.flow("owner")
    assert record is not None
    once = store.follow(lease, SHARED, expected=0, incarnation=record.incarnation, configs=CONFIGS)
    again = store.follow(lease, SHARED, expected=0, incarnation=record.incarnation, configs=CONFIGS)
    assert [(link.epoch, link.digest) for link in once.links] == [(link.epoch, link.digest) for link in again.links]
    owner.bind({"a": 1})
    more = store.follow(lease, SHARED, expected=1, incarnation=record.incarnation, configs=CONFIGS)
    assert [link.epoch for link in more.links] == [1, 2]
    with pytest.raises(UpperMismatch):
        store.follow(lease, SHARED, expected=9, incarnation=record.incarnation, configs=CONFIGS)


def test_following_notes_the_owners_losses_once(opened: Callable[[], Store], url: str) -> None:
    owner, store, lease = both(url)
    owner.bind({"a": 2})
    owner.lose("a")
    keep_up(store, lease)
    owner.lose("a")
    keep_up(store, lease)
    assert [gap.source for gap in store.gaps("follower")] == ["mine"]
    assert store.noted == 1
