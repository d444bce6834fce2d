"""A flow of many sources is registered and loaded with few questions; what was registered is not written again."""

from __future__ import annotations

from collections.abc import Callable

from tests.remap.store.asked import statements

from tidegauge.remap.store import Lease, OutputSpec, SourceSpec, Store

SOURCES = {f"s{n}": SourceSpec({"n": n}) for n in range(40)}
OUTPUTS = {f"o{n}": OutputSpec(f"s{n}", {"path": str(n)}) for n in range(40)}


def test_what_is_registered_as_it_was_is_not_written_again(store: Store, lease: Lease) -> None:
    store.register(lease, sources=SOURCES, outputs=OUTPUTS)
    with statements() as said:
        store.register(lease, sources=SOURCES, outputs=OUTPUTS)
    assert len(said) < 12
    assert not [one for one, _ in said if one.startswith(("INSERT", "UPDATE sources", "UPDATE outputs"))]
    changed = {**SOURCES, "s7": SourceSpec({"n": "other"})}
    with statements() as said:
        store.register(lease, sources=changed, outputs=OUTPUTS)
    assert len([one for one, _ in said if one.startswith("UPDATE sources")]) == 1
    assert store.load("shop").sources["s7"].config == {"n": "other"}


def test_of_each_source_only_its_bindings_are_asked_for_by_themselves(
    store: Store, lease: Lease, opened: Callable[[], Store]
) -> None:
    store.register(lease, sources=SOURCES, outputs=OUTPUTS)
    with statements() as said:
        loaded = opened().load("shop")
    assert loaded.sources.keys() == {*SOURCES, "orders", "clicks"}
    assert len([one for one, _ in said if "FROM changes" in one]) == len(loaded.sources)
    assert len(said) < len(loaded.sources) + 30
