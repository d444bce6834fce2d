"""A store whose file is away, because its disk is not mounted, gives errors or somebody has moved it, is waited for:
the run goes on once the very same store is back, and ends when it is another one, or somebody else has its lease."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.disks import Disk, disk_image, small_disk
from tests.flow.by_hand import Run
from tests.flow.shop import Shop

import tidegauge as tg
from tidegauge.errors.store import LeaseLost, StoreAway, StoreReplaced
from tidegauge.remap.store import EXPIRY, LeaseHolder, Store


def steps(run: Run, count: int) -> None:
    """Let a run try again, as often as this at most."""
    for _ in range(count):
        run.step(EXPIRY)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, tmp_path / "state")


# Moved, on a disk that is there


def move(shop: Shop) -> Callable[[], None]:
    """Rename the folder of the store; return what renames it back."""
    away = shop.place.rename(shop.root / "away")

    def back() -> None:
        away.rename(shop.place)

    return back


def test_a_store_that_is_moved_away_and_back_is_waited_for_and_nothing_is_written_meanwhile(shop: Shop) -> None:
    run = shop.begin()
    upper, since = run.runner.board.upper, run.world.clock.now()
    back = move(shop)
    shop.world.points.clear()
    error = shop.wait(run)
    assert (error.code, error.evidence["moved"]) == ("TG-0256", True)
    assert str(shop.place) in str(error)
    for _ in range(20):
        shop.add()
        run.step()
        assert run.runner.ended("caught-up") is None
    assert run.runner.board.store.since is not None
    assert (run.runner.board.store.since - since).total_seconds() < 1
    assert run.runner.board.upper == upper
    assert "before commit output" not in shop.world.points
    assert not shop.place.exists(), "no store was made in its place"
    back()
    shop.all_there(run)


def test_a_store_that_was_moved_for_good_ends_the_run_when_its_lease_would_have_run_out(shop: Shop) -> None:
    run = shop.begin()
    back = move(shop)
    shop.wait(run)
    run.step(EXPIRY - 2)
    assert run.runner.board.store.error is not None
    with pytest.raises(StoreReplaced, match="not at its path"):
        run.step(EXPIRY)
    run.abandon()
    assert not shop.place.exists()
    back()
    shop.world.clock.seconds += EXPIRY
    again = shop.world.start()
    shop.all_there(again)


def test_a_store_that_was_removed_for_good_ends_the_run_at_once(shop: Shop) -> None:
    run = shop.begin()
    shutil.rmtree(shop.place)
    shop.add()
    with pytest.raises(StoreReplaced, match="it was removed"):
        run.step()
    run.abandon()
    assert not shop.place.exists()


def test_another_file_that_is_put_in_its_place_meanwhile_ends_the_run(shop: Shop) -> None:
    run = shop.begin()
    backup = shop.root / "backup"
    shutil.copytree(shop.place, backup)
    move(shop)
    shop.wait(run)
    backup.rename(shop.place)
    before = {part.name: part.read_bytes() for part in shop.place.iterdir()}
    with pytest.raises(StoreReplaced, match="another file"):
        run.step(EXPIRY - 1)
    run.abandon()
    assert {part.name: part.read_bytes() for part in shop.place.iterdir()} == before, "nothing of it was touched"


def test_a_driver_whose_lease_was_taken_while_the_store_was_away_stops(shop: Shop) -> None:
    run = shop.begin()
    back = move(shop)
    shop.wait(run)
    back()
    shop.world.clock.seconds += EXPIRY
    other = Store.open(shop.world.store, env=shop.world.env())
    lease = other.acquire("shop", holder=LeaseHolder.current(shop.world.env()))
    with pytest.raises(LeaseLost):
        run.step()
    lease.release()
    other.close()
    run.abandon()
    shop.all_there(shop.world.start())


def test_a_run_that_is_stopped_while_its_store_is_away_ends_and_the_next_one_goes_on(shop: Shop) -> None:
    run = shop.begin()
    back = move(shop)
    shop.wait(run)
    run.runner.stop()
    assert run.runner.run(None).why == "stopped"
    run.abandon()
    back()
    shop.world.clock.seconds += EXPIRY  # the lease could not be given back
    shop.all_there(shop.world.start())


# A mount that goes


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[tuple[Shop, Callable[[], None]]]:
    """A shop whose store is on a disk that is mounted at a second place, and what mounts it there again."""
    with small_disk(tmp_path / "disk", size="8m") as disk:
        shop = Shop(tmp_path, tmp_path / "state")

        def mount() -> None:
            subprocess.run(["mount", "--bind", disk, shop.place], check=True)

        mount()
        yield shop, mount
        subprocess.run(["umount", "-l", shop.place], check=False, capture_output=True)


def test_a_store_whose_disk_is_unmounted_is_waited_for_as_long_as_it_takes(
    mounted: tuple[Shop, Callable[[], None]],
) -> None:
    shop, mount = mounted
    run = shop.begin()
    subprocess.run(["umount", "-l", shop.place], check=True)
    error = shop.wait(run)
    assert "is not mounted" in str(error)
    run.step(100 * EXPIRY)
    run.step(100 * EXPIRY)
    assert isinstance(run.runner.board.store.error, StoreAway)
    assert list(shop.place.iterdir()) == [], "nothing is written below it"
    mount()
    shop.all_there(run)


# A disk that gives errors


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk, mounted where the store of a shop in this folder is."""
    with disk_image(tmp_path / "image", tmp_path / "state") as made:
        yield made


@pytest.mark.parametrize("how", ["dead", "read-only"])
def test_a_store_whose_disk_gives_errors_is_waited_for_and_lets_the_disk_be_mounted_again(
    how: str, disk: Disk, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, tmp_path / "state")
    run = shop.begin()
    disk.die() if how == "dead" else disk.turn_read_only()
    error = shop.wait(run)
    assert "disk I/O error" in str(error)
    assert not error.evidence["moved"]
    disk.unmount()
    assert "is not mounted" in str(shop.wait(run, seconds=EXPIRY))
    disk.mount()
    shop.all_there(run)


def test_a_store_whose_disk_comes_back_under_another_number_is_the_same_if_it_holds_the_same(
    disk: Disk, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, tmp_path / "state")
    run = shop.begin()
    before = shop.place.stat().st_dev
    disk.die()
    disk.unmount(lazy=True)  # open files hold on to it
    shop.wait(run)
    disk.attach_anew()
    disk.mount()
    assert shop.place.stat().st_dev != before
    shop.all_there(run)


def test_an_older_copy_of_its_disk_is_not_the_same_store(disk: Disk, tmp_path: Path) -> None:
    shop = Shop(tmp_path, tmp_path / "state")
    run = shop.begin()
    disk.copy(tmp_path / "older")
    for _ in range(3):
        shop.add()
        run.catch_up()
    disk.unmount(lazy=True)
    shop.wait(run)
    disk.attach_anew(tmp_path / "older")
    disk.mount()
    with pytest.raises(StoreReplaced, match="the epochs before 6"):
        steps(run, 3)
    run.abandon()


def test_a_command_given_while_the_disk_gives_errors_says_so_and_not_that_the_store_is_damaged(
    disk: Disk, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, tmp_path / "state")
    shop.begin().abandon()
    disk.die()
    for command in (shop.world.start, lambda: tg.status(shop.flow(shop.world))):
        with pytest.raises(StoreAway, match=r"flow\.db"):
            command()
