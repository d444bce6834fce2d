"""Clients are kept for the next borrower, and for nobody else: not after a failure, not in a child, not for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegauge.kafka.clients import KEPT, Client, Shelf


def test_a_client_that_failed_is_closed_and_not_lent_again() -> None:
    shelf, closed = Shelf(), list[object]()
    with pytest.raises(OSError, match="down"), shelf.lent("key", lambda: Client(1, closed.append)):
        raise OSError("down")
    assert closed == [1]
    with shelf.lent("key", lambda: Client(2, closed.append)) as client:
        assert client.handle == 2


def test_a_client_is_lent_to_one_at_a_time_and_best_to_who_goes_on_where_it_is() -> None:
    shelf = Shelf()
    with shelf.lent("key", lambda: Client(1, print)) as one, shelf.lent("key", lambda: Client(2, print)) as other:
        one.place, other.place = "here", "there"
    with shelf.lent("key", lambda: Client(3, print), at="here") as client:
        assert client.handle == 1
    with shelf.lent("another key", lambda: Client(4, print), at="here") as client:
        assert client.handle == 4


def test_no_more_than_so_many_are_kept_and_the_oldest_goes_first() -> None:
    shelf, closed = Shelf(), list[object]()
    for number in range(KEPT + 2):
        with shelf.lent(number, lambda number=number: Client(number, closed.append)):  # type: ignore[misc]
            pass
    assert closed == [0, 1]


def test_a_child_after_a_fork_has_no_client_of_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "from tidegauge.kafka import Settings\n"
        "from tidegauge.kafka.clients import SHELF, admin\n"
        "settings = Settings.of('127.0.0.1:1')\n"
        "with admin(settings) as client:\n"
        "    mine = client\n"
        "child = os.fork()\n"
        "with admin(settings) as client:\n"
        "    same = client is mine\n"
        "if child == 0:\n"
        "    os._exit(9 if same else 3)\n"
        "assert same\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=60)
