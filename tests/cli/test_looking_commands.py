"""`status`, `epochs` and `explain`: what they print for people and for programs, and that they change nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Shop

import tidegauge as tg

LINE = len('{"id": 1, "user": "u1"}\n')
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")


def shape(value: Any) -> Any:
    """The form of a value: times as TIME, lists by their items."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "TIME" if isinstance(value, str) and TIME.fullmatch(value) else value


def test_status_as_json(open_shop: Shop) -> None:
    done = open_shop("status", "shop.py", "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    sizes = [output.pop("bytes") for output in found["outputs"]]
    assert all(size > 500 for size in sizes)
    assert shape(found) == {
        "flow": "shop",
        "store": f"sqlite:///{open_shop.root}/shop.db",
        "running": None,
        "silent": None,
        "upper": 3,
        "published": 3,
        "minted_at": "TIME",
        "since": 0,
        "holds": [],
        "awaited": [],
        "sources": [
            {
                "name": "orders",
                "state": "idle",
                "unit": "bytes",
                "partitions": 1,
                "bound": 6 * LINE,
                "published": 6 * LINE,
                "end": 6 * LINE,
                "lag": 0,
                "note": "",
                "required": False,
                "incarnation": 0,
                "lost": 0,
                "held_back": None,
                "held_back_limit": None,
                "stalled_since": None,
                "error": None,
            }
        ],
        "outputs": [
            {
                "name": name,
                "source": "orders",
                "state": "live",
                "upper": 3,
                "lag": 0,
                "rows": 6,
                "files": 3,
                "start": None,
                "timestamps": None,
                "code_changed_at": [],
                "filled": None,
                "replacing": False,
                "paused": [],
                "waits_for": [],
                "stalled_since": None,
                "error": None,
            }
            for name in ("orders", "slow")
        ],
    }


def test_status_for_people(open_shop: Shop) -> None:
    done = open_shop("status", "shop.py")
    assert (done.code, done.err) == (0, "")
    assert "shop  not running" in done.out
    assert "3 of 3 epochs published" in done.out
    text = [line.split() for line in done.out.splitlines()]
    assert ["orders", "idle", "1", "144", "bytes", "144", "bytes", "0", "bytes"] in text
    assert [line[:7] for line in text if line[:1] == ["slow"]] == [
        ["slow", "live", "orders", "3", "0", "epochs", "6"]
    ]


def test_epochs_as_json(open_shop: Shop) -> None:
    done = open_shop("epochs", "shop.py", "--json")
    assert (done.code, done.err) == (0, "")
    assert shape(done.json) == [
        {"epoch": epoch, "minted_at": "TIME", "published_at": "TIME", "bound": {"orders": lines * LINE}}
        for epoch, lines in enumerate((2, 1, 3))
    ]
    newest = open_shop("epochs", "shop.py", "--json", "--limit", "2").json
    assert newest == done.json[1:]


def test_epochs_for_people(open_shop: Shop) -> None:
    done = open_shop("epochs", "shop.py", "--limit", "1")
    assert (done.code, done.err) == (0, "")
    head, line = done.out.splitlines()
    assert head.split() == ["epoch", "minted", "(UTC)", "published", "(UTC)", "orders"]
    assert re.fullmatch(r"\s*2 (\s*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d){2}\s+72 bytes\s*", line)


def test_explain_as_json(open_shop: Shop) -> None:
    done = open_shop("explain", "shop.py", "1", "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    detail = found["slices"][0].pop("detail")
    assert detail["path"] == str(open_shop.root / "in" / "1.jsonl")
    assert re.fullmatch("[0-9a-f]{16}", found["slices"][0].pop("partition"))
    assert shape(found) == {
        "epoch": 1,
        "minted_at": "TIME",
        "published_at": "TIME",
        "slices": [{"source": "orders", "lower": 2 * LINE, "upper": 3 * LINE, "unit": "bytes"}],
        "rows": {"orders": 1, "slow": 1},
        "gaps": [],
    }


def test_explain_for_people(open_shop: Shop) -> None:
    done = open_shop("explain", "shop.py", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("epoch 2  minted 2")
    text = [line.split() for line in done.out.splitlines()]
    path = str(open_shop.root / "in" / "1.jsonl")
    assert ["orders", "72", "144", "72", "bytes"] in [line[:5] for line in text]
    assert path in done.out.replace("\n", "")
    assert ["slow", "3"] in text


def test_an_epoch_that_is_not_there(open_shop: Shop) -> None:
    done = open_shop("explain", "shop.py", "7")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "TG-0610: there is no epoch 7 in the flow 'shop'; it has 3, counted from 0\n"
        "  likely cause: a mistyped number, or an epoch that is still to come\n"
        "  what to do:   ask for an existing epoch: 'tidegauge epochs' lists the newest ones\n"
    )


def test_an_error_as_json_is_an_object_on_the_output_too(open_shop: Shop) -> None:
    done = open_shop("explain", "shop.py", "7", "--json")
    assert done.code == 1
    assert set(done.json) == {"error"}
    assert set(done.json["error"]) == {"code", "summary", "cause", "remedy", "evidence"}
    assert done.json["error"]["code"] == "TG-0610"
    assert done.json["error"]["evidence"] == {"epoch": 7, "flow": "shop", "upper": 3}
    assert done.err.startswith("TG-0610: ")


def test_a_flow_that_never_ran_is_no_flow_yet_and_looking_makes_no_store(shop: Shop) -> None:
    said = f"TG-0605: the store sqlite:///{shop.root}/shop.db knows nothing of the flow 'shop'\n"
    for command in (("status", "shop.py"), ("epochs", "shop.py"), ("explain", "shop.py", "0")):
        done = shop(*command)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(said)
        assert "what to do:   run it first" in done.err
    assert {path.name for path in shop.root.iterdir()} == {"shop.py"}


def test_status_shows_a_failed_source_with_what_to_do(shop: Shop) -> None:
    shop.write(1, 2)
    shop.catch_up()
    Path(shop.root / "in" / "1.jsonl").write_text('{"id": 9}\n' * 9, encoding="utf-8")
    run = shop("run", "shop.py", "--until", "caught-up", "--engine", "local")
    assert run.code == 1
    assert "Traceback" not in run.err
    assert "TG-0320: " in run.err
    done = shop("status", "shop.py")
    assert done.code == 0, "saying where it stands is what was asked"
    assert re.search(r"orders +failed", done.out)
    assert f"TG-0320: {shop.root}/in/1.jsonl is no longer the file it was: 48 bytes of it are bound" in done.out
    found = shop("status", "shop.py", "--json").json
    assert found["sources"][0]["error"]["code"] == "TG-0320"
    assert [output["state"] for output in found["outputs"]] == ["failed", "failed"]
    assert found["outputs"][0]["rows"] == 2


def test_status_shows_a_failed_output_with_what_to_do_and_one_that_is_planned(shop: Shop) -> None:
    made = (shop.root / "shop.py").read_text(encoding="utf-8")
    raising = made.replace("    return batch", "    raise ValueError('postgresql://ada:hunter2@db/shop')")
    (shop.root / "shop.py").write_text(raising, encoding="utf-8")
    shop.write(1)
    with pytest.raises(tg.TidegaugeError, match="TG-0508"):
        shop.catch_up()
    (shop.root / "shop.py").write_text(
        raising.replace("map_batches(wait", "map_batches(lambda b: wait(b) if b.num_rows else b"), encoding="utf-8"
    )
    with pytest.raises(tg.TidegaugeError, match="TG-0110"):
        shop.catch_up()
    late = '\nflow.sink("late", orders, tg.ParquetSink(str(HERE / "lake" / "late")))\n'
    (shop.root / "shop.py").write_text(made + late, encoding="utf-8")
    done = shop("status", "shop.py")
    assert done.code == 0
    assert re.search(r"slow +failed +orders +0 +1 epochs", done.out)
    assert re.search(r"late +planned +orders +0 +1 epochs", done.out)
    assert (
        "TG-0110: map_batches(<lambda>) of output 'slow' raised ValueError: postgresql://ada:***@db/shop" in done.out
    )
    assert "correct the function and start again" in done.out
    assert "hunter2" not in shop("status", "shop.py", "--json").out
    shop.catch_up()
    assert {o.state for o in tg.status(shop.flow).outputs} == {"live"}
