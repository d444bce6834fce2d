"""What a pattern names among objects is what it names among files of the same paths."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.depth import examples

from tidegauge.sources.file.listing import listed
from tidegauge.sources.file.objects.listing import beginning, fits

PARTS = st.sampled_from(["a", "b", "ab", "_a", ".b", "a.json", "_b.json", "2026"])
STEPS = st.one_of(PARTS, st.sampled_from(["*", "**", "a*", "_*", ".*", "?", "[ab]*", "*.json", "20??"]))


@given(
    st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=8),
    st.lists(STEPS, min_size=1, max_size=4),
)
@settings(max_examples=examples(60))
def test_a_pattern_names_the_same_paths_in_a_store_as_on_a_disk(keys: set[str], steps: list[str]) -> None:
    pattern = "/".join(steps)
    with tempfile.TemporaryDirectory() as folder:
        made = [key for key in sorted(keys) if not any(other.startswith(f"{key}/") for other in keys)]
        for key in made:
            path = Path(folder, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        on_disk = [path.removeprefix(f"{folder}/") for path, _ in listed(f"{folder}/{pattern}").files]
    assert [key for key in made if fits(pattern, key)] == on_disk
    place = beginning(f"s3://lake/{pattern}")
    for key in on_disk:
        if place is None:
            assert key == pattern
        else:
            _bucket, begins, deep = place
            assert key.startswith(f"{begins}/" if begins else "")
            assert deep or "/" not in key.removeprefix(f"{begins}/" if begins else "")
