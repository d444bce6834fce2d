"""Files that are damaged, and places that cannot be written: said with what is whole, and nothing is written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.remap.store.raw import dump, sql
from tests.remap.store.test_store_crashes import drive, world
from tests.waiting import eventually

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.store import CorruptStore, NotAStore, StoreFull, StoreNotWritable, StoreTooNew
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store
from tidegauge.remap.store.schema import metadata

_WHOLE = 2**20
"""A place in a file is a part of this."""

_JOURNAL = slice(18, 20)
"""Where a file says in which journal mode it is."""


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with something in every table but two, each of which has a page of its own."""
    path = tmp_path_factory.mktemp("whole") / "store.db"
    drive(f"sqlite:///{path}", world())
    return path


@pytest.fixture(scope="module")
def whole(whole_file: Path) -> bytes:
    """What is in that file."""
    return whole_file.read_bytes()


def read_all(path: Path) -> None:
    """Ask the store in a file for everything that a run or a person asks for."""
    store = Store.open(f"sqlite:///{path}", env=world())
    try:
        store.load("shop")
        store.epochs("shop")
        store.times("shop")
        store.holder("shop")
        store.holds("shop")
        store.gaps("shop")
    finally:
        store.close()


def page_of(url: str, table: str) -> int:
    [(page,)] = sql(url, f"SELECT rootpage FROM sqlite_master WHERE name = '{table}'")
    return int(page)


def test_a_file_that_was_cut_short_says_how_much_of_it_is_there_and_what_can_be_read(
    whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(whole)
    sql(f"sqlite:///{path}", f'UPDATE outputs SET config = \'{{"note": "{20_000 * "x"}"}}\'')
    longer = path.read_bytes()  # the long text is at its end
    path.write_bytes(longer[:-4096])
    with pytest.raises(CorruptStore, match=rf"has {len(longer) - 4096} of its {len(longer)} bytes") as caught:
        read_all(path)
    told = caught.value.evidence["intact"]
    assert "timeline (3 rows)" in told
    assert "flows (1 rows)" in told
    assert told.endswith("can be read, outputs cannot")
    assert path.read_bytes() == longer[:-4096]
    assert [found.name for found in tmp_path.iterdir()] == ["store.db"]


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_a_table_that_was_overwritten_is_named(whole: bytes, tmp_path: Path, table: str) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(whole)
    start = 4096 * (page_of(f"sqlite:///{path}", table) - 1)
    damaged = whole[:start] + 4096 * b"\xff" + whole[start + 4096 :]
    path.write_bytes(damaged)
    with pytest.raises(CorruptStore) as caught:
        read_all(path)
    readable, _, lost = caught.value.evidence["intact"].partition(" can be read, ")
    assert lost == f"{table} cannot"
    assert readable.count("rows)") == len(metadata.tables) - 1
    assert path.read_bytes() == damaged


def test_a_file_of_which_only_the_beginning_is_left_says_so(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(CorruptStore, match="tables none can be read"):
        read_all(path)


@pytest.mark.parametrize("left", [1, 15, 16, 99])
def test_a_file_of_which_a_few_bytes_are_left_is_no_new_store(whole: bytes, tmp_path: Path, left: int) -> None:
    """SQLite itself takes a file of one byte for an empty one."""
    path = tmp_path / "store.db"
    path.write_bytes(whole[:left])
    with pytest.raises(CorruptStore, match=f" {left} bytes of it are left"):
        read_all(path)
    assert path.read_bytes() == whole[:left]
    assert [found.name for found in tmp_path.iterdir()] == ["store.db"]


@pytest.mark.parametrize("foreign", [b"x", b"\0", b"id,user\n1,ada\n", b"\0" * 4096], ids=len)
def test_a_file_of_something_else_is_no_new_store_however_short_it_is(tmp_path: Path, foreign: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(foreign)
    with pytest.raises(NotAStore):
        read_all(path)
    assert path.read_bytes() == foreign
    assert [found.name for found in tmp_path.iterdir()] == ["store.db"]


def test_a_file_that_was_emptied_beside_what_belongs_to_it_is_no_new_store(tmp_path: Path) -> None:
    """SQLite would remove the -wal, and with it what can be saved."""
    path, wal = tmp_path / "store.db", tmp_path / "store.db-wal"
    store = Store.open(f"sqlite:///{path}", env=world())
    kept = wal.read_bytes()
    store.close()
    path.write_bytes(b"")
    wal.write_bytes(kept)
    with pytest.raises(CorruptStore, match="emptied"):
        read_all(path)
    assert (path.read_bytes(), wal.read_bytes()) == (b"", kept)


@deep(120)
@given(
    st.just(_WHOLE) | st.integers(0, _WHOLE),
    st.lists(st.tuples(st.integers(0, _WHOLE - 1), st.integers(0, 255)), max_size=30),
)
def test_whatever_is_wrong_with_a_file_it_is_read_or_said_in_our_words_and_not_written_to(
    whole_file: Path, tmp_path_factory: pytest.TempPathFactory, cut: int, changes: list[tuple[int, int]]
) -> None:
    whole = whole_file.read_bytes()
    damaged = bytearray(whole[: cut * len(whole) // _WHOLE])
    for place, byte in changes:
        if (at := place * len(whole) // _WHOLE) < len(damaged):
            damaged[at] = byte
    path = tmp_path_factory.mktemp("damaged") / "store.db"
    path.write_bytes(damaged)
    with suppress(TidegaugeError):
        read_all(path)
    if damaged and damaged[_JOURNAL] == whole[_JOURNAL]:  # an empty file is a new store
        assert path.read_bytes() == bytes(damaged)
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("mode", [b"\1\1", b"\0\0", b"\2\0"])
def test_a_whole_file_in_another_journal_mode_is_read_as_it_is_and_taken_into_ours(
    whole: bytes, tmp_path: Path, mode: bytes
) -> None:
    """As VACUUM INTO makes one, and a PRAGMA. SQLite takes numbers that it does not give for the oldest mode."""
    path = tmp_path / "store.db"
    path.write_bytes(whole)
    before = dump(f"sqlite:///{path}")
    path.write_bytes(whole[:18] + mode + whole[20:])
    read_all(path)
    assert dump(f"sqlite:///{path}") == before
    assert path.read_bytes()[_JOURNAL] == b"\2\2"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE timeline SET minted_at = 'yesterday'",
        "UPDATE flows SET upper = 'many'",
        "UPDATE flows SET upper = -1",
        "UPDATE sources SET config = '{'",
        "UPDATE sources SET config = '7'",
        "UPDATE sources SET schema = '[[1]]'",
        "UPDATE sources SET failure = '{}'",
        "UPDATE sources SET failed_at = NULL",
        "UPDATE partitions SET detail = 'x'",
        "UPDATE outputs SET config = x'ff'",
        "UPDATE partitions SET key = x'ff' WHERE key = 'p0'",
        "UPDATE outputs SET config = CAST(x'ff' AS TEXT)",
        "ALTER TABLE outputs RENAME COLUMN config TO conf",
        "DROP TABLE leases",
    ],
)
def test_a_value_that_nobody_has_written_is_not_taken_for_one(whole: bytes, tmp_path: Path, change: str) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(whole)
    sql(f"sqlite:///{path}", change)
    with pytest.raises(CorruptStore, match="Nothing was written"):
        read_all(path)


def test_a_value_that_nobody_has_written_is_not_taken_for_one_on_a_server_either(url: str, env: Env) -> None:
    drive(url, world())
    sql(url, "UPDATE timeline SET minted_at = 'yesterday'")
    store = Store.open(url, env=env)
    with pytest.raises(CorruptStore, match="'yesterday' is no time"):
        store.epochs("shop")
    store.close()


def test_a_database_of_something_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    for mine in ("CREATE TABLE flows (mine)", "CREATE TABLE epochs (mine)"):
        sql(f"sqlite:///{path}", mine)
    before = path.read_bytes()
    with pytest.raises(NotAStore, match="epochs, flows"):
        read_all(path)
    assert path.read_bytes() == before, "not even turned to WAL"
    assert [found.name for found in tmp_path.iterdir()] == ["mine.db"]


# Places that cannot be written


FULL = """
import resource, signal, sys
from pathlib import Path
from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.store import LeaseHolder, Store
from tests.remap.store.test_store_damaged import fill
path = Path(sys.argv[1])
if sys.argv[2] == "limit":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    fill(f"sqlite:///{path}", 100)
except TidegaugeError as error:
    print(type(error).__name__)
"""


def fill(url: str, epochs: int) -> None:
    """Bind many partitions at each of many epochs, until it is done or the disk is full."""
    env = Env()
    store = Store.open(url, env=env)
    try:
        lease = store.acquire("shop", holder=LeaseHolder.current(env))
        store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
        for epoch in range(epochs):
            bound = {"orders": Proposal(frontier=Frontier({f"p{n}": epoch + 1 for n in range(200)}))}
            store.append(lease, expected=epoch, at=env.now(), proposals=bound)
        lease.release()  # or the next one is told that we are running, which it can be told on a full disk too
    finally:
        store.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A disk of one megabyte, which can be mounted again with other options. Only for who may mount."""
    place = tmp_path / "small"
    place.mkdir()

    def mount(options: str) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("nothing can be mounted here")
        return place

    yield mount
    while subprocess.run(["umount", place], capture_output=True, check=False).returncode == 0:
        pass


def whole_up_to_its_upper(url: str) -> int:
    """How far a store is bound, after a look at whether it holds what that says."""
    store = Store.open(url, env=Env())
    loaded = store.load("shop")
    store.close()
    assert len(loaded.sources["orders"].table) == 200 * loaded.flow.upper
    return loaded.flow.upper


def test_on_a_full_disk_what_was_bound_stays_bound_and_the_next_run_goes_on(
    small: Callable[[str], Path], tmp_path: Path
) -> None:
    url = f"sqlite:///{small('size=1m')}/store.db"
    with pytest.raises(StoreFull, match=r"full|I/O"):
        fill(url, 1000)
    small_enough = tmp_path / "roomy.db"
    for part in (tmp_path / "small").iterdir():
        shutil.copy(part, small_enough.with_name(part.name.replace("store", "roomy")))
    assert whole_up_to_its_upper(f"sqlite:///{small_enough}") > 5


@pytest.mark.parametrize("there", [False, True])
def test_a_disk_that_is_full_from_the_start_is_said_to_be(small: Callable[[str], Path], there: bool) -> None:
    place = small("size=256k")
    if there:
        fill(f"sqlite:///{place}/store.db", 1)
    with suppress(OSError), (place / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(4096)):
            pass
    with pytest.raises(StoreFull):
        fill(f"sqlite:///{place}/store.db", 2)


def test_a_store_on_a_disk_that_may_only_be_read_stays_as_it_is(small: Callable[[str], Path]) -> None:
    place = small("size=1m")
    fill(f"sqlite:///{place}/store.db", 1)
    before = (place / "store.db").read_bytes()
    small("remount,ro")
    with pytest.raises(StoreNotWritable):
        fill(f"sqlite:///{place}/store.db", 2)
    assert (place / "store.db").read_bytes() == before


def test_where_no_file_may_grow_what_was_bound_stays_bound(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    run = [sys.executable, "-c", FULL, str(path), "limit"]
    here = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(run, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": here})
    assert done.stdout == "StoreFull\n", done.stderr
    assert 0 < whole_up_to_its_upper(f"sqlite:///{path}") < 100
    assert dump(f"sqlite:///{path}")["store_layout"]


# What is looked at before it is opened


def folder(path: Path) -> dict[str, bytes]:
    """Everything in a folder: names and bytes."""
    return {found.name: found.read_bytes() for found in path.iterdir()}


@pytest.fixture
def left(whole: bytes, tmp_path: Path) -> Path:
    """A store whose driver was killed: not all is in the file, and the -wal and -shm are there."""
    path, taken = tmp_path / "store.db", tmp_path / "taken"
    path.write_bytes(whole)
    taken.mkdir()
    store = Store.open(f"sqlite:///{path}", env=world())
    store.acquire("shop", holder=replace(LeaseHolder.current(world()), host="elsewhere"))
    for part in tmp_path.glob("store.db*"):
        shutil.copy(part, taken)
    store.close()
    return taken / "store.db"


@pytest.mark.parametrize("table", ["changes", "outputs"])
def test_of_a_damaged_store_whose_driver_was_killed_not_a_byte_changes_and_no_name(left: Path, table: str) -> None:
    with left.open("r+b") as file:
        file.seek(4096 * (root(left, table) - 1))
        file.write(4096 * b"\xff")
    before = folder(left.parent)
    assert before["store.db-wal"]
    with pytest.raises(CorruptStore, match=f"{table} cannot"):
        read_all(left)
    assert folder(left.parent) == before


def root(path: Path, table: str) -> int:
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        [(page,)] = connection.execute(f"SELECT rootpage FROM sqlite_master WHERE name = '{table}'")
        return int(page)


@pytest.mark.parametrize("where", ["the file", "the -wal"])
def test_of_a_store_of_a_newer_version_whose_driver_was_killed_not_a_byte_changes(
    left: Path, tmp_path: Path, where: str
) -> None:
    with closing(sqlite3.connect(left, isolation_level=None)) as connection:
        connection.execute("UPDATE store_layout SET version = 99")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)") if where == "the file" else None
        connection.execute("UPDATE flows SET created_at = '2020-01-01T00:00:00.000000Z'")
        newer = tmp_path / "newer"
        shutil.copytree(left.parent, newer)
    before = folder(newer)
    assert before["store.db-wal"]
    with pytest.raises(StoreTooNew, match="layout 99"):
        read_all(newer / "store.db")
    assert folder(newer) == before


def test_a_file_that_is_gone_from_beside_its_wal_is_no_new_store(left: Path) -> None:
    left.unlink()
    before = folder(left.parent)
    assert Store.exists(f"sqlite:///{left}")
    with pytest.raises(CorruptStore, match="it is gone, and its -wal is not"):
        read_all(left)
    assert folder(left.parent) == before


def test_a_whole_store_whose_driver_was_killed_is_gone_on_with(left: Path) -> None:
    store = Store.open(f"sqlite:///{left}", env=world())
    assert "elsewhere" in store.holder("shop"), "what was in the -wal alone"
    store.close()


@dataclass(frozen=True)
class Parts:
    """What there was of a store while its driver lived: a backup that it outran, and the file at three instants."""

    path: Path
    backup: bytes
    old: bytes
    new: bytes
    wal: bytes
    frontier: dict[str, int]

    def put(self, file: bytes) -> None:
        """Put a file beside the -wal that the driver left."""
        for part in self.path.parent.glob("store.db*"):
            part.unlink()
        self.path.with_name("store.db-wal").write_bytes(self.wal)
        eventually(lambda: self._written(file))

    def _written(self, file: bytes) -> bool:
        """Whether the file is younger than the -wal, by a file system's clock that moves in steps."""
        self.path.write_bytes(file)
        return self.path.stat().st_ctime_ns > self.path.with_name("store.db-wal").stat().st_ctime_ns


def parts(root: Path, *, backup: int, checkpoint: int, upper: int, partitions: int) -> Parts:
    """Bind that many epochs, with a backup and a checkpoint on the way."""
    path, env = root / "store.db", world()
    store = Store.open(f"sqlite:///{path}", env=env)
    lease = store.acquire("shop", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({})}, outputs={})
    taken: dict[str, bytes] = {}
    with closing(sqlite3.connect(path)) as keeper:
        for epoch in range(upper):
            if epoch == backup:
                with closing(sqlite3.connect(root / "backup")) as copy:
                    keeper.backup(copy)
            if epoch == checkpoint:
                keeper.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            bound = Proposal(frontier=Frontier({f"p{n}": epoch + 1 for n in range(partitions)}))
            store.append(lease, expected=epoch, at=env.now(), proposals={"orders": bound})
        taken["old"], taken["wal"] = path.read_bytes(), path.with_name("store.db-wal").read_bytes()
    store.close()
    taken |= {"new": path.read_bytes(), "backup": (root / "backup").read_bytes()}
    return Parts(path, frontier={f"p{n}": upper for n in range(partitions)}, **taken)


@pytest.mark.parametrize("instants", [(11, 39, 43, 20), (29, 83, 89, 1), (12, 50, 57, 1)])
def test_a_backup_that_is_put_beside_the_wal_of_a_killed_driver_is_not_taken_for_a_store(
    instants: tuple[int, int, int, int], tmp_path: Path
) -> None:
    """The pages fit together so well that SQLite goes on with both; partitions would have gone back, or not be found
    by the one index."""
    backup, checkpoint, upper, partitions = instants
    left = parts(tmp_path, backup=backup, checkpoint=checkpoint, upper=upper, partitions=partitions)
    left.put(left.backup)
    before = folder(tmp_path)
    for _ in range(2):
        with pytest.raises(CorruptStore, match="its -wal is that of another file"):
            read_all(left.path)
    assert folder(tmp_path) == before
    left.path.with_name("store.db-wal").unlink()
    read_all(left.path)


@given(done=st.sets(st.integers(0, 60)))
def test_what_a_driver_left_that_died_in_a_checkpoint_is_its_own(done: set[int], left_in_one: Parts) -> None:
    """Some of the pages had come from the -wal into the file."""
    left, page = left_in_one, 4096
    pages = [left.old[at : at + page] for at in range(0, len(left.old), page)]
    mixed = [left.new[n * page : (n + 1) * page] if n in done else old for n, old in enumerate(pages)]
    left.put(b"".join(mixed))
    store = Store.open(f"sqlite:///{left.path}", env=world())
    found = store.load("shop").sources["orders"].table.frontier
    store.close()
    assert dict(found.items()) == left.frontier


@pytest.fixture(scope="module")
def left_in_one(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return parts(tmp_path_factory.mktemp("left"), backup=11, checkpoint=39, upper=43, partitions=20)
