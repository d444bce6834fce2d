"""The page on reclocking shows what happens: each section is a program of its own, and prints what it shows."""

from __future__ import annotations

import pytest
from tests.docs.pages import ROOT
from tests.docs.test_dataflow_guide import play, sections

SECTIONS = sections(ROOT / "docs" / "explanation" / "reclocking.md")


@pytest.mark.parametrize("heading", ["By range", "As a stream", "How much waits"])
def test_a_section_prints_what_it_shows(heading: str) -> None:
    assert play(SECTIONS[heading]) >= 1


def test_nothing_is_shown_that_is_not_played() -> None:
    kinds = {heading: {block.kind for block in blocks} for heading, blocks in SECTIONS.items()}
    assert kinds == {
        "The example, by hand": {"text"},
        "By range": {"pycon"},
        "As a stream": {"pycon"},
        "How much waits": {"pycon"},
    }
