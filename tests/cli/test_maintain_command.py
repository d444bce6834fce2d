"""`maintain`: what it says for people and for programs, and how it ends."""

from __future__ import annotations

import json

from deltalake import DeltaTable
from tests.cli.conftest import Ask, Shop


def test_tables_are_packed_cleared_and_said(shop: Shop, ask: Ask) -> None:
    for number in range(5):
        shop.write(number)
        shop.catch_up()
    planned = ask("maintain", "shop.py", "--dry-run")
    assert (planned.exit_code, planned.stdout.splitlines()[0]) == (0, "shop: nothing was changed, this was a dry run")
    assert planned.stdout.splitlines()[1].startswith("orders: 5 files would become 1 (5 of them would be packed, ")
    done = ask("maintain", "shop.py")
    assert done.exit_code == 0
    head, orders, slow = done.stdout.splitlines()
    assert head == "shop: maintained"
    assert orders.startswith("orders: 5 files became 1 (5 of them packed, ")
    assert orders.endswith(" bytes, as version 5)")
    assert slow == "slow: left alone, ParquetSink has nothing to maintain unseen"
    done = ask("maintain", "shop.py", "--output", "orders", "--retention-hours", "0", "--json")
    [said] = json.loads(done.stdout)["outputs"]
    assert (said["files_before"], said["files_after"], said["removed"], said["versions"]) == (1, 1, 5, [])
    assert (said["kind"], said["left"], said["kept"], said["error"]) == ("delta", None, 0, None)


def test_a_table_that_cannot_be_maintained_is_an_exit_code_and_its_error_is_said(shop: Shop, ask: Ask) -> None:
    for number in range(3):
        shop.write(number)
        shop.catch_up()
    DeltaTable(str(shop.root / "lake" / "orders")).restore(1)
    done = ask("maintain", "shop.py")
    assert done.exit_code == 1
    assert "orders: " in done.stdout
    assert "was taken away (RESTORE, version 3)" in done.stdout
    done = ask("maintain", "shop.py", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["outputs"][0]["error"]["code"] == "TG-0420"


def test_wrong_names_are_refused(shop: Shop, ask: Ask) -> None:
    shop.write(1)
    shop.catch_up()
    for name, code in (("slow", "TG-0490"), ("none", "TG-0104")):
        done = ask("maintain", "shop.py", "--output", name)
        assert (done.exit_code, code in done.stderr) == (1, True)
