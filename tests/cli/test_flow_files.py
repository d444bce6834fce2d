"""Which flow a command is about, and what a file that is none of that gets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Done, Shop

from tidegauge.cli.app import app
from tidegauge.cli.load import load_flow, own_modules
from tidegauge.errors.command import FlowFileBroken

TWO = """
import tidegauge as tg

def make(name):
    flow = tg.Dataflow(name, store=f"sqlite:///{name}.db")
    rows = flow.source("rows", tg.GeneratorSource(rows=3, columns="n long"))
    flow.sink("rows", rows, tg.ParquetSink(f"lake/{name}"))
    return flow

first = make("one")
second = make("two")
also_first = first
number = 7
"""


def refused(done: Done, start: str) -> str:
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith(start), done.err
    assert "Traceback" not in done.err
    lines = done.err.splitlines()
    assert len(lines) == 3, "one line each for what happened, why, and what to do, also where nobody sees a terminal"
    assert lines[1].startswith("  likely cause: ")
    assert lines[2].startswith("  what to do:   ")
    return done.err


def test_a_file_of_several_flows_needs_to_be_told_which(shop: Shop) -> None:
    (shop.root / "two.py").write_text(TWO, encoding="utf-8")
    text = refused(shop("status", "two.py"), "TG-0604: ")
    assert "makes several flows: 'first', 'second'" in text
    assert "two.py:first'" in text
    text = refused(shop("status", "two.py:secnd"), "TG-0609: ")
    assert "has no flow in a variable 'secnd'. Known: 'also_first', 'first', 'second'." in text
    assert "two.py:second'" in text

    done = shop("run", "two.py:second", "--until", "caught-up", "--engine", "local")
    assert done.code == 0, done.err
    assert done.err.endswith("two: sealed; epoch 0 is the last published\n")
    assert [path.name for path in (shop.root / "lake").iterdir()] == ["two"]


def test_a_file_that_is_not_there(shop: Shop) -> None:
    text = refused(shop("run", "shp.py"), "TG-0601: there is no file ")
    assert f"{shop.root}/shp.py" in text


def test_a_file_without_a_flow(shop: Shop) -> None:
    (shop.root / "none.py").write_text("x = 1\n", encoding="utf-8")
    refused(shop("run", "none.py"), "TG-0603: none.py makes no flow\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\n\nx = {}['key']\n", "broken.py, line 3, raised KeyError: 'key'"),
        ("def f():\n    return 1 / 0\n\nf()\n", "broken.py, line 2, raised ZeroDivisionError: division by zero"),
        ("x = = 1\n", "broken.py, line 1, raised SyntaxError: invalid syntax"),
        ("import no_such_module\n", "broken.py, line 1, raised ModuleNotFoundError: No module"),
        ("import sys\nsys.exit(0)\n", "broken.py, line 2, raised SystemExit: 0"),
    ],
)
def test_a_file_that_raises(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(text, encoding="utf-8")
    with pytest.raises(FlowFileBroken) as broken:
        load_flow(tmp_path / "broken.py")
    assert str(broken.value).startswith(f"TG-0602: {said}")
    assert "broken" not in sys.modules


def test_a_file_that_makes_a_flow_wrongly_gets_the_flow_s_own_error(shop: Shop) -> None:
    text = 'import tidegauge as tg\nflow = tg.Dataflow("a flow", store="sqlite:///x.db")\n'
    (shop.root / "broken.py").write_text(text, encoding="utf-8")
    refused(shop("run", "broken.py"), "TG-0101: the flow name 'a flow' is not usable\n")


def test_a_traceback_only_with_debug(shop: Shop) -> None:
    (shop.root / "broken.py").write_text("x = 1 / 0\n", encoding="utf-8")
    refused(shop("run", "broken.py"), "TG-0602: broken.py, line 1, raised ZeroDivisionError: division by zero\n")
    done = shop("run", "broken.py", "--debug")
    assert done.code == 1
    assert "Traceback (most recent call last)" in done.err
    assert "ZeroDivisionError" in done.err


def test_a_file_that_was_changed_within_the_second_is_read_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file, text = tmp_path / "edited.py", 'import tidegauge as tg\nflow = tg.Dataflow("one", store="sqlite:///x.db")\n'
    file.write_text(text, encoding="utf-8")
    status = file.stat()
    assert load_flow(file).name == "one"
    file.write_text(text.replace("one", "two"), encoding="utf-8")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert load_flow(file).name == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["edited.py"]


@pytest.mark.parametrize("name", ["queue", "pyarrow"])
def test_a_file_named_like_a_library_does_not_replace_it(name: str, tmp_path: Path) -> None:
    library = sys.modules[name]
    (tmp_path / f"{name}.py").write_text(f"{TWO}\nhere = __name__\n", encoding="utf-8")
    flow = load_flow(tmp_path / f"{name}.py:first")
    assert flow.name == "one"
    assert sys.modules[name] is library
    assert [module.__dict__["here"] for module in own_modules(tmp_path)] == [f"flow_file_{name}"]


def test_a_module_beside_the_file_can_be_imported_from_any_folder(shop: Shop, tmp_path: Path) -> None:
    (shop.root / "names.py").write_text("FLOW = 'beside'\n", encoding="utf-8")
    text = TWO.replace("import tidegauge as tg", "import tidegauge as tg\nfrom names import FLOW")
    (shop.root / "two.py").write_text(text.replace('make("one")', "make(FLOW)"), encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = shop("run", f"{shop.root}/two.py:first", "--until", "caught-up", "--engine", "local", cwd=elsewhere)
    assert done.code == 0, done.err
    assert "beside: sealed" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run",), "Missing argument 'FLOW'"),
        (("walk", "shop.py"), "No such command 'walk'"),
        (("run", "shop.py", "--until", "done"), "'done' is not 'caught-up'"),
        (("run", "shop.py", "--engine", "flink"), "'flink' is none of 'spark', 'local' and 'sail'"),
        (("run", "shop.py", "--engine", "local", "--spark", "local[2]"), "goes with --engine spark"),
        (("run", "shop.py", "--json"), "No such option: --json"),
        (("explain", "shop.py", "newest"), "Invalid value for 'EPOCH'"),
        (("explain", "shop.py", "--", "-1"), "there is no epoch -1"),
        (("explain", "shop.py", "-1"), "there is no epoch -1"),
        (("epochs", "shop.py", "--limit", "0"), "Invalid value for '--limit'"),
    ],
)
def test_bad_usage_ends_with_2(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(list(arguments), prog_name="tidegauge")
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert said in " ".join(err.replace("│", " ").split())


def test_help_names_every_command(shop: Shop) -> None:
    done = shop("--help")
    assert done.code == 0
    assert all(command in done.out for command in ("run", "status", "epochs", "explain"))
