"""A driver that is killed again and again, and a server with it: each row is in the tables once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.flow.postgres_driver import INSIDE, make
from tests.postgres import Server, new_database
from tests.sinks.postgres.conftest import seen

POINTS = [*INSIDE, "before commit output", "after commit output", "before publish", "after stage"]

pytestmark = pytest.mark.long


def test_a_flow_whose_driver_is_killed_again_and_again_has_each_row_once(tmp_path: Path, own_server: Server) -> None:
    address = own_server.address(new_database(own_server))
    (tmp_path / "in").mkdir()
    put = 0

    def live(point: str, nth: int) -> int:
        nonlocal put
        lines = [{"id": n % 17, "name": f"{n:06}"} for n in range(put, put + 10)]
        (tmp_path / "in" / f"{put:06}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        put += 10
        command = [sys.executable, "-m", "tests.flow.postgres_driver", str(tmp_path), address, point, str(nth)]
        return subprocess.run(command, check=False, cwd=Path(__file__).parents[2], timeout=120).returncode

    ended = list[int]()
    for at, point in enumerate(POINTS):
        for nth in (0, 2):
            ended.append(live(point, nth))
            if at % 3 == 2:
                own_server.kill()
                own_server.start()
    assert set(ended) <= {-9, 0}
    assert ended.count(-9) > len(ended) // 2
    assert live("", 0) == 0
    added, by_id = seen(address, "added"), seen(address, "by_id")
    assert sorted(row["name"] for row in added) == [f"{n:06}" for n in range(put)]
    last = {row["id"]: row["name"] for row in sorted(added, key=lambda row: (row["_epoch"], row["name"]))}
    assert {row["id"]: row["name"] for row in by_id} == last
    staged = list((tmp_path / "staging").rglob("*.parquet"))
    assert staged == []
    assert make(tmp_path, address).run("caught-up", engine="local").published
