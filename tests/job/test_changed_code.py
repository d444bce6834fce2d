"""When the code of an output counts as changed: for what it does, never for where it stands or how it was loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from tidegauge.job.bytecode import described
from tidegauge.job.code import CodePart, OutputCode, changes, code_of, giving_columns
from tidegauge.job.plan import (
    Dedupe,
    Filter,
    MapBatches,
    OutputPlan,
    Partition,
    Select,
    SplitBy,
    Step,
    Transform,
    Unnest,
)


def of(*steps: Step, source: str = "orders") -> OutputCode:
    return code_of(OutputPlan("late", source, "rows", steps, sink=None))  # type: ignore[arg-type]


def loaded(text: str, name: str = "step", file: str = "shop.py", module: str = "shop") -> Callable[..., Any]:
    """A function as a module has it that was loaded from a text."""
    around: dict[str, Any] = {"__name__": module}
    exec(compile(textwrap.dedent(text), file, "exec"), around)
    found = around[name]
    assert callable(found)
    return found  # type: ignore[no-any-return]


def same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    return not changes(of(MapBatches(one)), of(MapBatches(other)))


PLAIN = """
LIMIT = 10
def helped(batch):
    return batch.slice(0, LIMIT)
def step(batch):
    found = [column for column in batch.schema.names if column in {"a", "b", "c"}]
    try:
        return helped(batch.select(found))
    except KeyError:
        return batch
"""


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n\n\n" + PLAIN,
        PLAIN.replace("def step(batch):", 'def step(batch):\n    """Say it."""'),
        PLAIN.replace("found", "names"),
        PLAIN.replace("step(batch)", "step(batch: object) -> object"),
        PLAIN.replace("helped", "shortened"),
        PLAIN.replace("return batch\n", "\n    # nothing\n        return batch\n"),
        PLAIN + "\ndef another():\n    return 3\n",
    ],
)
def test_words_about_code_and_names_in_it_do_not_count(text: str) -> None:
    assert same(loaded(PLAIN), loaded(text, file="renamed.py", module="renamed"))


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ("LIMIT = 10", "LIMIT = 11"),
        ("slice(0, LIMIT)", "slice(1, LIMIT)"),
        ('"b"', '"d"'),
        ("in {", "not in {"),
        ("KeyError", "ValueError"),
        ("return batch\n", "return None\n"),
    ],
)
def test_what_code_does_counts_also_in_the_functions_that_it_calls(there: str, then: str) -> None:
    assert not same(loaded(PLAIN), loaded(PLAIN.replace(there, then)))


def sent(function: Callable[..., Any]) -> Callable[..., Any]:
    found = cloudpickle.loads(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    assert callable(found)
    return found  # type: ignore[no-any-return]


def test_code_that_was_sent_to_another_process_is_as_it_was() -> None:
    for step in (loaded(PLAIN), default(3), counted(default(3)), Above(3).rows):
        assert same(step, sent(step))


def test_another_process_finds_the_same_text(tmp_path: Path) -> None:
    script = tmp_path / "elsewhere.py"
    script.write_text(
        f"{PLAIN}\nfrom tidegauge.job.bytecode import described\nprint(repr(described(step)))\n", encoding="utf-8"
    )
    said = {
        subprocess.run(
            [sys.executable, script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True, capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert said == {f"{described(loaded(PLAIN))!r}\n"}


@dataclass(frozen=True)
class Above:
    limit: int

    def __call__(self, batch: Any) -> Any:
        return batch.slice(self.limit)

    def rows(self, batch: Any) -> Any:
        return batch.slice(self.limit)


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def counting(batch: Any) -> Any:
        return function(batch)

    return counting


def kept(batch: Any, rows: int = 0) -> Any:
    return batch.slice(rows)


def default(rows: int) -> Callable[..., Any]:
    def step(batch: Any, rows: int = rows) -> Any:
        return batch.slice(rows)

    return step


@pytest.mark.parametrize(
    "make",
    [
        lambda n: partial(kept, rows=n),
        lambda n: partial(kept, n),
        lambda n: lambda batch: batch.slice(n),
        lambda n: counted(lambda batch: batch.slice(n)),
        lambda n: counted(partial(kept, rows=n)),
        default,
        Above,
        lambda n: Above(n).rows,
        lambda n: loaded(f"def step(batch):\n    return batch.slice({n})"),
    ],
)
def test_values_that_a_function_is_made_with_count(make: Callable[[int], Callable[..., Any]]) -> None:
    assert same(make(1), make(1))
    assert not same(make(1), make(2))


def test_what_a_function_binds_anew_and_objects_do_not_count() -> None:
    counting = """
        def make(n, seen):
            def step(batch):
                nonlocal n
                n += 1
                seen.append(n)
                return batch
            return step
        """
    step = loaded(counting, "make")(1, [])
    before = of(MapBatches(step))
    step("a batch")
    assert changes(before, of(MapBatches(step))) == ()
    assert same(step, loaded(counting, "make")(7, [object()]))


def test_functions_of_other_modules_and_builtins_count_by_their_names() -> None:
    assert same(len, len)
    assert not same(len, sorted)
    step = "def step(batch):\n    return helped(batch)"
    one, other, renamed = (loaded(step) for _ in range(3))
    for function, body in ((one, "batch"), (other, "batch[1:]")):
        function.__globals__["helped"] = loaded(f"def helped(batch):\n    return {body}", "helped", module="library")
    renamed.__globals__["helped"] = loaded("def cut(batch):\n    return batch", "cut", module="library")
    assert same(one, other)
    assert not same(one, renamed)


def test_functions_that_call_each_other_are_looked_at_once() -> None:
    text = "def step(n):\n    return other(n)\ndef other(n):\n    return step(n - {})"
    assert same(loaded(text.format(1)), loaded(text.format(1)))
    assert not same(loaded(text.format(1)), loaded(text.format(2)))


def test_what_another_python_has_compiled_is_not_compared_and_all_else_is() -> None:
    before = of(Filter("n > 1"), MapBatches(kept), Transform(kept))
    parts = (p if not p.compiled else CodePart(p.about, "of another", compiled=True) for p in before.parts)
    other = OutputCode("cpython-399", tuple(parts))
    assert changes(other, before) == ()
    assert changes(other, of(Filter("n > 2"), MapBatches(kept), Transform(kept))) == ("step 1 (filter) is another",)
    assert changes(other, of(Filter("n > 1"), MapBatches(kept))) == ("step 3 (transform) is gone",)


SQL = st.sampled_from(["n > 1", "n  >\n 1", "n > 2", "name = 'a  b'", "name = 'a b'"])
STEPS = st.lists(st.one_of(st.builds(Filter, SQL), st.builds(lambda *e: Select(e), SQL, SQL)), max_size=4)


def _spaced(step: Step) -> Any:
    texts = [step.condition] if isinstance(step, Filter) else [*step.expressions]  # type: ignore[union-attr]
    return type(step).__name__, [text if "'" in text else text.split() for text in texts]


@given(STEPS, STEPS, st.sampled_from(["orders", "clicks"]))
def test_steps_of_sql_are_alike_when_they_say_the_same(one: list[Step], other: list[Step], source: str) -> None:
    alike = [*map(_spaced, one)] == [*map(_spaced, other)] and source == "orders"
    found = changes(of(*one), of(*other, source=source))
    assert (found == ()) == alike
    assert len(changes(of(*other, source=source), of(*one))) == len(found)
    assert OutputCode.decode(of(*one).encode()) == of(*one)


def test_steps_of_ours_are_alike_when_they_say_the_same() -> None:
    steps: list[Step] = [
        Unnest("a"),
        Unnest("b"),
        Dedupe(("a",)),
        Dedupe(("a", "b")),
        Partition(2, ("a",), 0),
        Partition(2, ("a",), 1),
        Partition(3, ("a",), 0),
        SplitBy("a", (1, 2), 1),
        SplitBy("a", (1, 2), 2),
        SplitBy("a", ("1", "2"), "1"),
        SplitBy("a", (1, 2), None),
        SplitBy("a", (1, 3), None),
    ]
    for at, step in enumerate(steps):
        for other_at, other in enumerate(steps):
            assert (changes(of(step), of(other)) == ()) == (at == other_at)
    assert not giving_columns(of(), of(Dedupe(("a",)))), "rows go by it"


@pytest.mark.parametrize("text", ["", "3", "[]", '["x", [[1]]]', "{}"])
def test_what_nobody_wrote_is_no_code(text: str) -> None:
    assert OutputCode.decode(text) is None


def functions(code: CodeType) -> list[CodeType]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [*inner, *(deep for one in inner for deep in functions(one))]


def text_of(code: CodeType) -> str:
    cells = tuple(CellType() for _ in code.co_freevars)
    return described(FunctionType(code, {"__name__": "shop"}, closure=cells)).code


@pytest.mark.parametrize("library", ["textwrap", "json.decoder", "csv", "statistics", "fractions", "graphlib"])
def test_code_that_is_formatted_anew_without_its_comments_is_the_same(library: str) -> None:
    text = Path(str(__import__(library, fromlist=["x"]).__file__)).read_text(encoding="utf-8")
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None and len(node.body) > 1:
            del node.body[0]
    one, other = functions(compile(text, "a.py", "exec")), functions(compile(ast.unparse(tree), "b.py", "exec"))
    assert len(one) > 5
    assert [*map(text_of, one)] == [*map(text_of, other)]
    assert len({*map(text_of, one)}) > len(one) / 2, "they are told apart"
