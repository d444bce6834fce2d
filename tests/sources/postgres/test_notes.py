"""The notes of tables: what a look at the catalog makes of them, and what is renewed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.catalog import CatalogLook, PublicationFacts, PublishedTable
from tidegauge.sources.postgres.growth import GrownColumn, TableGrowth
from tidegauge.sources.postgres.notes import FollowedNotes

ALL = PublicationFacts(inserts=True, updates=True, deletes=True, truncates=True, root=False)


def table(member: int = 7, **columns: int) -> PublishedTable:
    """A table with columns of these numbers, which the publication has by a row of this number."""
    grown = {name: GrownColumn(number, 25, -1, valued=False) for name, number in columns.items()}
    growth = TableGrowth(max(columns.values()), 1, listed=False, columns=grown)
    facts = ("r", "d", True, True, tuple(columns), None, ())
    return PublishedTable(1, "public", "orders", *facts, growth=growth, members=((member, ""),))


def seen(path: Path, *tables: PublishedTable, followed: str = "id") -> dict[str, str]:
    """Look at tables, as a new connection does; return those that are not the noted ones."""
    notes = FollowedNotes(SourceFolder(str(path)), "server 1", 0, keeps=False)
    look = CatalogLook(150000, "logical", False, "", True, "", 0, ALL, tables, (), None)
    return notes.changed(look, {"public.orders": pa.schema([(one, pa.string()) for one in followed.split()])})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FollowedNotes(SourceFolder(str(tmp_path)), "server 1", 0, keeps=False).begin([table(id=1)], {})
    return tmp_path


def test_a_column_that_is_followed_has_the_number_that_it_has_then(folder: Path) -> None:
    assert not seen(folder, table(id=1, note=2))
    assert not seen(folder, table(id=1, note=4)), "it was dropped and made again before it was followed"
    assert not seen(folder, table(id=1, note=4), followed="id note")
    assert not seen(folder, table(id=1), followed="id note"), "others tell that it is gone"
    [why] = seen(folder, table(id=1, note=5), followed="id note").values()
    assert "its column 'note' is another one" in why


def test_what_was_taken_out_and_put_back_stays_so(folder: Path) -> None:
    for member in (8, 9):
        assert "put back" in seen(folder, table(member, id=1))["public.orders"]
    assert not seen(folder, table(7, id=1)), "no other row of a catalog ever has this number"
