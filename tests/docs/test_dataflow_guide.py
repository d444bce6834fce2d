"""The guide to the core is exact: each section is a program of its own, prints what it shows and draws its pictures.

`<!-- test: draws EXPRESSION -->` stands before a picture: it is what the expression gives at this point.
"""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT, Block, blocks

import tidegauge.dataflow as core
from tidegauge.dataflow import arrow, records
from tidegauge.errors import CODES

GUIDE = ROOT / "docs" / "dataflow"
REFERENCE = GUIDE / "reference.md"
BUILDING = {"check_open", "connect", "let_out", "reserve", "stream", "take_in"}
"""What the scope has for operators alone."""


def sections(page: Path) -> dict[str, list[Block]]:
    """Return the blocks of a page by the heading they stand under."""
    heads = [(n, line) for n, line in enumerate(page.read_text().split("\n"), 1) if line.startswith("## ")]
    found: dict[str, list[Block]] = {}
    for block in blocks(page):
        head = [line for n, line in heads if n < block.line][-1]
        found.setdefault(head.removeprefix("## "), []).append(block)
    return found


SECTIONS = {
    f"{page.stem}: {heading}": found
    for page in sorted(GUIDE.glob("*.md"))
    for heading, found in sections(page).items()
}


def play(found: list[Block]) -> int:
    """Play the blocks of a section from an empty namespace; return how many of them could have failed."""
    names: dict[str, Any] = {"__name__": "section"}
    checked = 0
    for block in found:
        if block.kind == "pycon":
            test = doctest.DocTestParser().get_doctest(block.text, names, str(block), str(block), block.line)
            said: list[str] = []
            doctest.DocTestRunner(optionflags=0).run(test, out=said.append, clear_globs=False)
            names = test.globs
            assert not said, "".join(said)
            checked += 1
        elif block.order.startswith("draws "):
            drawn = str(eval(block.order.removeprefix("draws "), names))
            assert block.text == f"{drawn}\n", str(block)
            checked += 1
    return checked


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_prints_and_draws_what_it_shows(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert play(SECTIONS[section]) >= 1


def test_nothing_is_shown_that_is_not_played() -> None:
    every = [block for found in SECTIONS.values() for block in found]
    assert {block.kind for block in every} == {"pycon", "mermaid", "text"}
    assert all(block.order.startswith("draws ") for block in every if block.kind == "mermaid")
    assert [block.page.stem for block in every if block.kind == "text"] == ["3-workers"]
    assert not [str(block) for block in every if block.kind == "pycon" and block.order]


def parameters(what: Callable[..., Any]) -> list[str]:
    """Return the parameters but `self`, the name of an operator, and whether it is named by keyword."""
    given = inspect.signature(what).parameters.values()
    return [p.name for p in given if p.name != "self" and not (p.name == "name" and p.kind is p.KEYWORD_ONLY)]


def rows(heading: str) -> dict[str, list[str] | None]:
    """Return what a section of the reference has a row for, each with the parameters that are shown."""
    text = REFERENCE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    shown: dict[str, list[str] | None] = {}
    for cell in re.findall(r"^\| (.*?) \| ", text, re.MULTILINE):
        for name, call in re.findall(r"`(\w+)(\([^`]*\))?`", cell):
            shown[name] = re.findall(r"(?:[(,] ?\*?)(\w+)(?=[=,)])", call) if call else None
    return shown


@pytest.mark.parametrize("what", [core.Stream, core.Scope, core.Worker], ids=lambda what: what.__name__)
def test_every_method_has_a_row_with_its_parameters(what: type) -> None:
    shown = rows(what.__name__)
    for name, member in vars(what).items():
        if name.startswith("_") or name in BUILDING:
            continue
        if inspect.isfunction(member):
            assert shown.pop(name) == parameters(member), name
        elif isinstance(member, property):
            assert shown.pop(name) is None, name
    attributes = {"order", "path", "index", "peers"}
    assert set(shown) <= attributes


@pytest.mark.parametrize(
    "what",
    [
        core.Worker,
        core.DeterministicCluster,
        core.Barrier,
        core.Sequencer,
        core.OperatorBuilder,
        core.Stash,
        core.EventQueue,
        core.EventWriter,
        core.EventReader,
        core.EventReceiver,
        core.execute,
    ],
    ids=lambda what: what.__name__,
)
def test_what_is_made_or_called_is_shown_with_its_parameters(what: Callable[..., Any]) -> None:
    call = re.search(rf"`{what.__name__}\(([^`]*)\)`", REFERENCE.read_text())
    assert call is not None
    assert re.findall(r"(?:^|, )(?:\*, )?(\w+)", call[1]) == parameters(what)


MEMBERS = [
    (names, members)
    for names, members in re.findall(r"^\| (`[^|]*) \| (.*) \|$", REFERENCE.read_text(), re.MULTILINE)
    if inspect.isclass(getattr(core, names.split("`")[1].partition("(")[0], None))
]


@pytest.mark.parametrize(("names", "members"), MEMBERS, ids=[names.split("`")[1] for names, _ in MEMBERS])
def test_methods_that_are_named_are_there(names: str, members: str) -> None:
    known = {method for name in re.findall(r"`(\w+)", names) for method in dir(getattr(core, name))}
    called = set(re.findall(r"`(\w+)\(", members.partition("; `build(context)` returns")[0]))
    assert called - {"len"} <= known


def test_every_public_name_of_the_core_is_in_the_reference() -> None:
    page = REFERENCE.read_text()
    assert [name for name in dir(core) if not re.search(rf"`(?:\w+\.)?{name}\b", page)] == []
    assert [n for n in records.__all__ if n[0].islower() and n != "worker_of" and f"`records.{n}(" not in page] == []
    assert "`arrow.route(" in page
    assert callable(arrow.route)


def test_every_error_of_the_core_is_in_the_reference() -> None:
    mine = {code: error.__name__ for code, error in CODES.items() if code.startswith("TG-07")}
    assert dict(re.findall(r"^\| \[(TG-\d+)\]\([^)]*\) \| `(\w+)` \|", REFERENCE.read_text(), re.MULTILINE)) == mine


def test_every_program_is_linked_from_the_front_page() -> None:
    linked = set(re.findall(r"\]\(\.\./\.\./examples/dataflow/(\w+\.py)\)", (GUIDE / "index.md").read_text()))
    assert linked == {program.name for program in (ROOT / "examples" / "dataflow").glob("*.py")}
