"""A dataflow drawn: deterministic text, names that are only ever text, the frontiers of the moment, bounded."""

from __future__ import annotations

import html.parser
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.dataflow import INT, InputHandle, OperatorBuilder, Worker
from tidegauge.dataflow.looking.draw import LARGEST
from tidegauge.errors.dataflow import OperatorFailed, UnknownDataflow

GOLDEN = """\
flowchart LR
  subgraph s["shop"]
    n1["orders"]
    subgraph s2["loop"]
      i2_0(["in 0"])
      o2_0(["out 0"])
      n2_1["feedback"]
      n2_2["concat"]
      n2_3["map"]
    end
    n3["split"]
    n4["left"]
    n5["right"]
  end
  i2_0 -->|"[(0, 0)]"| n2_2
  n2_1 -->|"[(0, 0)]"| n2_2
  n2_2 -->|"[(0, 0)]"| n2_3
  n2_3 -->|"[(0, 0)]"| n2_1
  n2_3 -->|"[(0, 0)]"| o2_0
  n1 -->|"[0]"| i2_0
  o2_0 -->|"[0]"| n3
  n3 -->|"[0]"| n4
  n3 -->|"[0]"| n5"""


def shop(worker: Worker, **names: str) -> InputHandle:
    """An input, a loop with a feedback, an operator of two outputs, and what each feeds."""

    def build(context: Any) -> Any:
        for capability in context.capabilities:
            capability.drop()
        return lambda inputs, outputs: None

    with worker.dataflow(names.get("flow", "shop"), order=INT) as scope:
        orders, stream = scope.input(names.get("input", "orders"))
        with scope.iterative(names.get("scope", "loop")) as loop:
            handle, again = loop.feedback((0, 1))
            turn = stream.enter(loop).concat(again).map(lambda n: n, name=names.get("map", "map"))
            handle.connect(turn)
            back = turn.leave()
        builder = OperatorBuilder(scope, "split")
        builder.input(back)
        for name in ("left", "right"):
            builder.output().map(len, name=name)
        builder.build(build)
    return orders


def steps(worker: Worker) -> None:
    for _ in range(9):
        worker.step()


def test_before_it_runs_everything_may_still_come(worker: Worker) -> None:
    shop(worker)
    assert str(worker.draw("shop")) == GOLDEN


def test_it_shows_the_frontiers_as_they_are_now_and_is_a_picture_of_that_moment(worker: Worker) -> None:
    orders = shop(worker)
    orders.advance_to(4)
    steps(worker)
    then = worker.draw("shop")
    text = str(then)
    assert 'n1 -->|"[4]"| i2_0' in text
    assert 'n2_1 -->|"[(4, 1)]"| n2_2' in text
    assert "[0]" not in text
    assert str(worker.draw("shop")) == text
    orders.advance_to(5)
    steps(worker)
    assert str(worker.draw("shop")) == text.replace("[4]", "[5]").replace("(4, ", "(5, ")
    assert str(then) == text


def test_an_edge_on_which_nothing_more_will_come_is_done(worker: Worker) -> None:
    with worker.dataflow("shop", order=INT) as scope:
        (orders, first), (_open, second) = scope.input("orders"), scope.input("open")
        first.concat(second)
    orders.close()
    worker.step()
    worker.step()
    assert str(worker.draw("shop")).split("\n")[-2:] == ['  n1 -->|"done"| n3', '  n2 -->|"[0]"| n3']


def test_an_unknown_dataflow_is_said(worker: Worker) -> None:
    shop(worker)
    with pytest.raises(UnknownDataflow, match="shop"):
        worker.draw("ship")


class Table(html.parser.HTMLParser):
    """The cells of each row; anything but what a table is made of is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in {"div", "table", "caption", "tr", "th", "td", "br", "p", "details", "summary", "pre"}
        assert {name for name, _ in attrs} <= {"style", "title"}
        if tag == "br":
            self.rows[-1][-1] += "|"
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def table(text: str) -> list[list[str]]:
    parser = Table()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser.rows


def test_in_a_notebook_it_is_a_table(worker: Worker) -> None:
    def fail(batch: Any) -> Any:
        raise ValueError(batch)

    with worker.dataflow("shop", order=INT) as scope:
        orders, stream = scope.input("orders")
        with scope.region("region") as region:
            back = stream.enter(region).map(fail, name="taste").leave()
        stream.concat(back)
    orders.send("x")
    orders.advance_to(3)
    with pytest.raises(OperatorFailed):
        steps(worker)
    steps(worker)
    assert table(worker.draw("shop")._repr_html_()) == [
        ["", "from", "frontier", "holds", "waiting", ""],
        ["orders", "", "", "[3]", "", ""],
        ["region", "orders", "[3]", "[0]", "", "scope"],
        ["taste", "in 0", "[0]", "[0]", "", "raised ValueError"],
        ["concat", "orders|region", "[3]|[0]", "", "", ""],
    ]
    assert 'n2_1["taste, raised ValueError"]' in str(worker.draw("shop"))
    assert 'i2_0 -->|"[0]"| n2_1' in str(worker.draw("shop"))  # a batch at 0 waits there, though no more will come


def test_what_cannot_be_seen_in_a_name_is_spelt_out(worker: Worker) -> None:
    shop(worker, input="\u202egnp.exe\n")
    drawing = worker.draw("shop")
    assert "#92;u202egnp.exe#92;n" in str(drawing)
    assert "<td>\\u202egnp.exe\\n</td>" in drawing._repr_html_()


hostile = st.sampled_from(
    [
        '"]\nend\nn9 --> n1["',
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "end",
        "%%{init: {}}%%",
        "a;b|c`d`&amp;#35;",
        "a/b\\c",
        "\u202egnp.exe",
        "x" * 5000,
        "",
        "日本 \0 \r",
    ]
) | st.text(max_size=12)

LINE = re.compile(
    r"""flowchart\ LR|\ +end|\ +subgraph\ s[\d_]*\["L"\]|\ +n[\d_]+\["L"\]|\ +[io][\d_]+\(\["L"\]\)
       |\ +[nio][\d_]+\ -->\|"L"\|\ [nio][\d_]+""".replace("L", r"[^\"<>`|%&\\;#\n]*(?:\#\d+;[^\"<>`|%&\\;#\n]*)*"),
    re.VERBOSE,
)


@deep(60)
@given(st.fixed_dictionaries({"flow": hostile, "input": hostile, "scope": hostile, "map": hostile}))
def test_whatever_a_name_is_it_is_text(names: dict[str, str]) -> None:
    worker = Worker(lambda: 0.0)
    shop(worker, **names)
    drawing = worker.draw(names["flow"])
    lines = str(drawing).split("\n")
    assert len(lines) == len(GOLDEN.split("\n"))
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert [re.sub(r'".*?"', "", line) for line in lines] == [
        re.sub(r'".*?"', "", line) for line in GOLDEN.split("\n")
    ]
    assert len(table(drawing._repr_html_())) == 9
    assert max(map(len, lines)) < 600


def test_of_a_large_dataflow_a_part_is_drawn_and_the_rest_counted(worker: Worker) -> None:
    with worker.dataflow("shop", order=INT) as scope:
        _, stream = scope.input("orders")
        for _ in range(2 * LARGEST):
            stream = stream.map(len)
        with scope.region("region") as region:
            stream.enter(region).map(len)
    drawing = worker.draw("shop")
    assert len(drawing.boxes) == LARGEST
    assert drawing.left_out == LARGEST + 3
    assert f'more["and {LARGEST + 3} more"]' in str(drawing)
    assert f"and {LARGEST + 3} more" in drawing._repr_html_()
    assert str(drawing).count("-->") == LARGEST - 1


def test_of_very_many_ports_and_edges_a_part_is_drawn(worker: Worker) -> None:
    with worker.dataflow("shop", order=INT) as scope:
        _, stream = scope.input("orders")
        with scope.region("region") as region:
            scope_streams = [stream.enter(region) for _ in range(2000)]
            region.concatenate(scope_streams)
    text = str(worker.draw("shop"))
    assert text.count("\n") < 10 * LARGEST
    assert len(worker.draw("shop")._repr_html_()) < 1_000_000
