"""The chain of a history: equal digests, and only they, are equal histories; links fold into where all stand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.remap.history import NO_HISTORY, Beginning, History, Link, Moves, agree, fold, follow, origin
from tidegauge.remap.rebuilding import pooled
from tidegauge.remap.start import StartRecord

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAMES = st.sampled_from(["orders", "clicks", 'a"b', "é"])
MOVES = st.builds(
    Moves,
    positions=st.dictionaries(st.sampled_from(["p0", "p1", "p,2"]), st.integers(1, 2**63 - 1), max_size=3),
    incarnation=st.integers(0, 2),
    state=st.none() | st.text(max_size=5),
    sealed=st.booleans(),
    begun=st.just(()) | st.just((Beginning(1, "topic 2", NOON.isoformat(), "recreated"),)),
    identity=st.sampled_from(["", "topic 1"]),
    schema=st.sampled_from(["", "[]"]),
    details=st.dictionaries(st.sampled_from(["p0", "p1"]), st.just({"path": "/in/1", "ino": 7}), max_size=2),
)
EPOCHS = st.lists(st.dictionaries(NAMES, MOVES, max_size=3), max_size=5)


def chain(epochs: list[dict[str, Moves]]) -> list[Link]:
    links, digest = list[Link](), origin("0" * 32)
    for epoch, sources in enumerate(epochs):
        digest = follow(digest, sources)
        at = NOON + timedelta(seconds=epoch)
        links.append(Link(epoch=epoch, digest=digest, minted_at=at, sources=sources))
    return links


def bindings(sources: Mapping[str, Moves]) -> object:
    """What an epoch binds, as values that are compared by nothing of ours."""
    return {
        (name, moves.incarnation, frozenset(moves.positions.items()), moves.state)
        for name, moves in sources.items()
        if moves.positions or moves.state is not None
    }


@given(EPOCHS, EPOCHS)
def test_histories_have_one_digest_iff_they_bind_the_same(
    ours: list[dict[str, Moves]], theirs: list[dict[str, Moves]]
) -> None:
    same = [bindings(epoch) for epoch in ours] == [bindings(epoch) for epoch in theirs]
    digests = [history[-1].digest if (history := chain(epochs)) else "" for epochs in (ours, theirs)]
    assert (digests[0] == digests[1]) == same


@given(EPOCHS)
def test_the_order_of_sources_and_partitions_does_not_matter(epochs: list[dict[str, Moves]]) -> None:
    turned = [
        {
            name: Moves(
                positions=dict(reversed(list(moves.positions.items()))),
                incarnation=moves.incarnation,
                state=moves.state,
            )
            for name, moves in reversed(list(epoch.items()))
        }
        for epoch in epochs
    ]
    assert [link.digest for link in chain(turned)] == [link.digest for link in chain(epochs)]


@given(EPOCHS)
def test_a_link_is_what_it_was_after_it_was_written(epochs: list[dict[str, Moves]]) -> None:
    history = History(tuple(chain(epochs)))
    assert History.decode(history.encode()) == history.links


@given(EPOCHS, st.data())
def test_links_fold_the_same_however_they_are_cut(epochs: list[dict[str, Moves]], data: st.DataObject) -> None:
    links = chain(epochs)
    cut = data.draw(st.integers(0, len(links)))
    front = fold(links[:cut])
    assert fold([*([] if front is None else [front]), *links[cut:]]) == fold(links)


@given(EPOCHS.filter(bool))
def test_links_tell_where_an_output_begins_however_they_are_folded_pooled_and_written(
    epochs: list[dict[str, Moves]],
) -> None:
    links, start = chain(epochs), StartRecord('"now"', 3)
    told = History(tuple(links)).beginning("late", start).links
    for found in (told, told[::-1]):
        [at] = [link for pool in pooled([*found, *links]).values() for link in pool.values() if link.starts]
        assert Link.decode(at.encode()).starts == {"late": start}
    assert (folded := fold([*told, *chain([*epochs, {}])[len(links) :]])) is not None
    assert Link.decode(folded.encode()).starts == {"late": start}


@given(EPOCHS, st.integers(1, 4), st.data())
def test_a_history_that_keeps_its_last_links_tells_of_them_what_the_whole_one_tells(
    epochs: list[dict[str, Moves]], kept: int, data: st.DataObject
) -> None:
    links, before = chain(epochs), origin("0" * 32)
    recent = NO_HISTORY
    for link in links:
        recent, before = recent.followed(link, before, kept=kept), link.digest
    lower = data.draw(st.integers(0, len(links)))
    upper = data.draw(st.integers(lower, len(links)))
    found = recent.between(lower, upper)
    assert (found is None) == (lower == upper or lower < len(links) - kept)
    if found is not None:
        first = links[lower - 1].digest if lower else origin("0" * 32)
        assert found == History(tuple(links[lower:upper]), first)


def test_what_is_not_a_whole_history_does_not_say_where_sources_stand() -> None:
    links = chain([{"orders": Moves(positions={"p0": n})} for n in (1, 2, 3)])
    assert fold([]) is None
    assert fold(links[1:]) is None
    assert fold([links[0], links[2]]) is None
    standing = fold(links)
    assert standing is not None
    assert (standing.sources["orders"].positions, standing.digest) == ({"p0": 3}, links[2].digest)


def test_a_new_incarnation_folds_from_its_own_beginning() -> None:
    begun = (Beginning(1, "topic 2", NOON.isoformat(), "recreated"),)
    before = Moves(
        positions={"p0": 9, "p1": 2}, identity="topic 1", schema="[]", sealed=True, details={"p1": {"a": 1}}
    )
    standing = fold(chain([{"orders": before}, {"orders": Moves(positions={"p0": 1}, incarnation=1, begun=begun)}]))
    assert standing is not None
    assert standing.sources["orders"] == Moves(positions={"p0": 1}, incarnation=1, begun=begun, schema="[]", moved=1)


def test_a_digest_agrees_with_enough_of_its_beginning() -> None:
    digest = origin("0" * 32)
    assert agree(digest, digest)
    assert agree(digest[:15], digest)
    assert not agree(digest[:14], digest)
    assert not agree(origin("1" * 32)[:15], digest)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        '{"epoch":-1,"digest":"00000000000000000000000000000000","minted_at":"2026-11-20T12:00:00+00:00","sources":{}}',
        '{"epoch":0,"digest":"zz","minted_at":"2026-11-20T12:00:00+00:00","sources":{}}',
        '{"epoch":0,"digest":"00000000000000000000000000000000","minted_at":"2026-11-20T12:00:00","sources":{}}',
        (
            '{"epoch":0,"digest":"00000000000000000000000000000000","minted_at":"2026-11-20T12:00:00+00:00",'
            '"sources":{"a":{"positions":{"p":1.5}}}}'
        ),
        "[" * 5000,
    ],
    ids=["array", "empty", "epoch", "digest", "time", "position", "deep"],
)
def test_what_is_no_link_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        History.decode(line)
