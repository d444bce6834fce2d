"""The page on FromTimes shows every kind, and what it shows happens."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import ROOT, Play
from tests.warm import Warm

from tidegauge.remap import fromtime
from tidegauge.remap.fromtime import FROM_TIMES, FromTime

PAGE = ROOT / "docs" / "reference" / "from-times.md"
ROWS = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \|.*\| `([^`]*)` \|$", PAGE.read_text(), re.MULTILINE)


def test_what_the_page_shows_happens(tmp_path: Path, warm: Warm) -> None:
    assert Play(PAGE, tmp_path, warm).play() >= 7


def test_every_kind_is_in_the_table_with_its_notation() -> None:
    assert [kind for kind, _, _ in ROWS] == list(FROM_TIMES)
    for kind, name, notation in ROWS:
        from_time: FromTime = getattr(fromtime, name)
        assert from_time == FROM_TIMES.from_time(kind)
        assert from_time.render(from_time.parse(notation)) == notation
