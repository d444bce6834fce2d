"""`backup`, `recover` and `verify`: what they print, as lines and as data, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.cli.conftest import Shop
from typer.testing import CliRunner, Result

from tidegauge.cli.app import app

Ask = Callable[..., Result]


@pytest.fixture
def ask(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs a command in this process, which is quicker than in one of its own."""
    monkeypatch.chdir(shop.root)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_a_store_is_backed_up_verified_and_recovered(shop: Shop, ask: Ask) -> None:
    shop.write(1)
    shop.catch_up()
    done = json.loads(ask("backup", "shop.py", "copy.db", "--json").stdout)
    assert (shop.root / "copy.db").stat().st_size == done["bytes"]
    again = ask("backup", "shop.py", "copy.db")
    assert (again.exit_code, "TG-0620" in again.stderr) == (1, True)
    shop.write(2)
    shop.catch_up()
    found = ask("verify", "shop.py")
    assert (found.exit_code, found.stdout.splitlines()[-1]) == (0, "nothing is wrong")
    store = next(path for path in shop.root.glob("*.db") if path.name != "copy.db")
    store.write_bytes((shop.root / "copy.db").read_bytes())
    found = ask("verify", "shop.py", "--json")
    assert (found.exit_code, ["TG-0240" in said for said in json.loads(found.stdout)["problems"]][:1]) == (1, [True])
    done = json.loads(ask("recover", "shop.py", "--json").stdout)
    assert (done["changed"], done["upper"], done["kept"]) == (True, 2, 1)
    done = ask("recover", "shop.py")
    assert (done.exit_code, "one history" in done.stdout) == (0, True)
    assert ask("verify", "shop.py").exit_code == 0
