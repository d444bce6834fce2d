"""The files of tables that came later: kept for as long as some output, or a table on its way, needs them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegauge.sources.database.folder import LogBeginning, SourceFolder
from tidegauge.sources.database.later import JoinedTable, LaterTables, came_later


@pytest.fixture
def later(tmp_path: Path) -> LaterTables:
    """Of a table that has joined at the place 96, while the chunks of others are in the file of this connection."""
    made = LaterTables(SourceFolder(str(tmp_path)), "server 1", 0)
    joining = made.begin(64)
    (made.files / joining.files).mkdir(parents=True)
    made.chunks.write_bytes(b"chunks")
    made.join([JoinedTable("shop.users", "users", 7, 64, 96, 0, "", (), joining.files)])
    return made


@pytest.mark.parametrize("coming", [True, False])
def test_chunks_of_tables_on_their_way_outlive_one_that_every_output_has(later: LaterTables, coming: bool) -> None:
    later.settle(96, coming=coming)
    assert later.chunks.exists() == coming
    assert not [one for one in later.files.iterdir() if one.is_dir()]
    assert later.held is None


def test_files_stay_until_every_output_has_them(later: LaterTables) -> None:
    later.settle(95, coming=False)
    assert later.chunks.exists()
    assert [one for one in later.files.iterdir() if one.is_dir()]
    assert later.held == 64


def test_a_reading_that_is_given_up_leaves_nothing_and_holds_nothing(later: LaterTables) -> None:
    later.settle(96, coming=False)
    (later.files / later.begin(128).files).mkdir()
    before = later.held
    later.give_up()
    assert (before, later.held) == (128, None)
    assert not [*later.files.iterdir()]


def test_a_stream_that_came_in_an_earlier_life_of_the_source_is_known_for_ever(later: LaterTables) -> None:
    names = {"shop.orders": "orders", "shop.users": "users", "shop.items": "items"}
    begun = LogBeginning("slot", "server 1", 0, point=32, oids={"shop.orders": 5})
    later.folder.keep_stream(begun)
    assert came_later(later.folder, names) == {"users": 96, "items": None}
    later.folder.keep_stream(replace(begun, incarnation=1, oids={"shop.orders": 5, "shop.users": 7}))
    assert came_later(later.folder, names) == {"users": 0, "items": None}
    LaterTables(later.folder, "server 1", 1).join([JoinedTable("shop.items", "items", 8, 128, 160, 0, "", (), "b")])
    assert came_later(later.folder, names) == {"users": 0, "items": 160}
    LaterTables(later.folder, "server 1", 1).forget(names)
    later.folder.keep_stream(replace(begun, incarnation=2, oids=dict.fromkeys(names, 0)))
    assert came_later(later.folder, names) == {"users": 0, "items": 0}


def test_a_stream_that_came_before_its_source_began_anew_with_it_is_known_from_then_on(tmp_path: Path) -> None:
    """The output of such a stream begins where the flow stood when it came; nothing of the source was bound yet."""
    folder, names = SourceFolder(str(tmp_path)), {"shop.orders": "orders", "shop.items": "items"}
    begun = LogBeginning("slot", "server 1", 0, point=32, oids={"shop.orders": 5})
    folder.keep_stream(begun)
    assert came_later(folder, names) == {"items": None}
    LaterTables(folder, "server 1", 0).forget(names)
    assert came_later(folder, names) == {"items": None}
    for point in (0, 64):  # while its slot is made, and from then on
        folder.keep_stream(replace(begun, point=point, oids=dict.fromkeys(names, 0)))
        assert came_later(folder, names) == {"items": 0}
