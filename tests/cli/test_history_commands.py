"""`backup`, `recover`, `repair` and `verify`: what they print, as lines and as data, and how they end."""

from __future__ import annotations

import json

from deltalake import DeltaTable
from tests.cli.conftest import Ask, Shop


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


def test_a_table_is_repaired_and_says_what_was_written_anew(shop: Shop, ask: Ask) -> None:
    for number in range(3):
        shop.write(number)
        shop.catch_up()
    local = ("repair", "shop.py", "orders", "--engine", "local")
    assert ask(*local).stdout == "shop: output orders lacks nothing; nothing was changed\n"
    table = DeltaTable(shop.root / "lake" / "orders")
    table.restore(1)
    table.update(updates={"user": "'eve'"}, predicate="id = 0")
    refused = ask(*local)
    assert (refused.exit_code, "TG-0422" in refused.stderr, "UPDATE, version 4" in refused.stderr) == (1, True, True)
    done = ask(*local, "--remove-foreign")
    first, again, *taken = done.stdout.splitlines()
    assert first == "shop: output orders is repaired, and holds the epochs before 3"
    assert again == "written anew: the epochs 0, 2, 2 rows"
    assert [said.startswith("taken out: part-") for said in taken] == [True]
    assert shop.rows("orders") == [(0, 0), (1, 1), (2, 2)]
    done = json.loads(ask(*local, "--from", "1", "--json").stdout)
    assert (done["changed"], done["epochs"], done["rows"], done["upper"]) == (True, [[1, 2]], 2, 3)
    assert shop.rows("orders") == [(0, 0), (1, 1), (2, 2)]


def test_a_table_that_is_gone_ends_the_run_with_the_reason_until_it_is_to_be_written_anew(
    shop: Shop, ask: Ask
) -> None:
    shop.write(0)
    shop.catch_up()
    (shop.root / "lake" / "orders").rename(shop.root / "moved")
    local = ("shop.py", "--engine", "local")
    ended = ask("run", *local, "--until", "caught-up")
    assert (ended.exit_code, "TG-0435" in ended.stderr) == (1, True)
    assert (shop.root / "lake" / "orders").exists() is False
    assert "TG-0435" in ask("status", "shop.py").stdout
    done = ask("repair", "shop.py", "orders", "--from", "0", "--engine", "local")
    assert done.stdout == "shop: nothing of output orders is there; the next run writes it anew\n"
    assert ask("run", *local, "--until", "caught-up").exit_code == 0
    assert shop.rows("orders") == [(0, 0)]


def test_a_repair_that_cannot_be_is_refused(shop: Shop, ask: Ask) -> None:
    assert "TG-0605" in ask("repair", "shop.py", "orders", "--engine", "local").stderr
    shop.write(1)
    shop.catch_up()
    assert "TG-0104" in ask("repair", "shop.py", "nobody", "--engine", "local").stderr
    assert "before 1, which the table holds" in ask("repair", "shop.py", "orders", "--from", "1").stderr
    assert ask("repair", "shop.py", "orders", "--engine", "other").exit_code == 2
