"""A dataflow as a picture: its scopes, operators and edges, and the present frontier at each edge.

A `Drawing` is a picture of one moment. Its text is Mermaid's, which many pages and editors show as a graph; in a
notebook it is a table, which needs neither a network nor a script. Scopes are boxes with their entrances and exits;
an edge carries the frontier of the input that it leads to: the times that may still arrive there, or *done*.

Invariant: the same dataflow at the same frontiers gives the same text, and no name, however it is written, is
anything but text in it. Of a large dataflow the first `LARGEST` operators are drawn, and the others counted.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     orders, stream = scope.input("orders")
...     _ = stream.map(len).probe()
>>> orders.advance_to(3)
>>> _ = worker.step(), worker.step()
>>> print(worker.draw("shop"))
flowchart LR
  subgraph s["shop"]
    n1["orders"]
    n2["map"]
  end
  n1 -->|"[3]"| n2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Final

from tidegauge.dataflow.invocation import Operator
from tidegauge.dataflow.order import Time
from tidegauge.dataflow.progress import Subgraph

__all__ = ["LARGEST", "Box", "Drawing", "draw"]

LARGEST: Final = 200
"""How many operators and scopes are drawn; of edges four times as many."""
_LONGEST: Final = 60
_PLAIN: Final = frozenset(" _-./,:()[]{}=+'@")


@dataclass(frozen=True, slots=True)
class Box:
    """An operator or a nested scope.

    path, name: the names from the dataflow down, and its own. depth: how many scopes it is in. sources, frontiers:
    for each input its sources and the times that may still arrive. held: the times of its capabilities, on all
    workers. waiting: the batches in its queues here. note: "scope", or the error that was raised.
    """

    path: str
    name: str
    depth: int
    sources: tuple[str, ...]
    frontiers: tuple[str, ...]
    held: tuple[str, ...]
    waiting: int
    note: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A dataflow at one moment. `str` is its Mermaid text; `left_out` counts the operators that are not drawn."""

    name: str
    mermaid: str
    boxes: tuple[Box, ...]
    left_out: int

    def __str__(self) -> str:
        return self.mermaid

    def _repr_html_(self) -> str:
        """Return a table of the operators, and the Mermaid text, for a notebook."""
        head = "".join(f"<th>{title}</th>" for title in ("", "from", "frontier", "holds", "waiting", ""))
        rows = "".join(f"<tr>{''.join(_cells(box))}</tr>" for box in self.boxes)
        more = f"<p>and {self.left_out} more</p>" if self.left_out else ""
        text = f"<details><summary>Mermaid</summary><pre>{escape(self.mermaid)}</pre></details>"
        table = f"<table><caption>{escape(_short(self.name))}</caption><tr>{head}</tr>{rows}</table>"
        return f"<div>{table}{more}{text}</div>"


def _cells(box: Box) -> Iterator[str]:
    style = f"text-align:left;padding-left:{box.depth}em"
    yield f'<td style="{style}" title="{escape(_short(box.path))}">{escape(_short(box.name))}</td>'
    for lines in (box.sources, box.frontiers, box.held, (str(box.waiting),) if box.waiting else (), (box.note,)):
        yield f"<td>{'<br>'.join(map(escape, lines))}</td>"


def draw(graph: Subgraph) -> Drawing:
    """Return a picture of the present state of a dataflow."""
    picture = _Picture()
    picture.scope(graph, graph.path, "", 1)
    indent = "  "
    lines = ["flowchart LR", *(indent + line for line in picture.lines)]
    if picture.left_out:
        lines.append(f'{indent}more["and {picture.left_out} more"]')
    lines += [f"{indent}{edge}" for edge in picture.edges]
    return Drawing(graph.path, "\n".join(lines), tuple(picture.boxes), picture.left_out)


class _Picture:
    """The parts of a drawing, as they come together scope by scope."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.edges: list[str] = []
        self.boxes: list[Box] = []
        self.left_out = 0

    def scope(self, graph: Subgraph, name: str, ident: str, depth: int) -> None:
        """Draw a scope. `ident` is made of the numbers of the nodes from the dataflow down to it."""
        indent = "  " * (depth - 1)
        self.lines.append(f'{indent}subgraph s{ident}["{_text(name)}"]')
        for kind, count in (("in", len(graph.entrances)), ("out", len(graph.exits))):
            for port in range(min(count, LARGEST)):
                self.lines.append(f'{indent}  {kind[0]}{ident}_{port}(["{kind} {port}"])')
        drawn = self._nodes(graph, ident, depth)
        self.lines.append(f"{indent}end")
        self.edges.extend(islice(self._edges(graph, ident, drawn), 4 * LARGEST - len(self.edges)))

    def _nodes(self, graph: Subgraph, ident: str, depth: int) -> set[int]:
        drawn = {0}
        feeding = _feeding(graph)
        for number, child in graph.blueprint.nodes():
            if len(self.boxes) >= LARGEST:
                self.left_out += 1 + (_count(child) if isinstance(child, Subgraph) else 0)
                continue
            drawn.add(number)
            inner = f"{ident}_{number}" if ident else str(number)
            note = "scope"
            if isinstance(child, Operator):
                note = f"raised {type(child.fault).__name__}" if child.fault is not None else ""
            self.boxes.append(_box(graph, number, depth, note, feeding))
            if isinstance(child, Subgraph):
                self.scope(child, graph.blueprint.names[number], inner, depth + 1)
            else:
                label = _text(graph.blueprint.names[number]) + (f", {_text(note)}" if note else "")
                self.lines.append(f'{"  " * depth}n{inner}["{label}"]')
        return drawn

    def _edges(self, graph: Subgraph, ident: str, drawn: set[int]) -> Iterator[str]:
        layout, implications = graph.tracker.graph, graph.tracker.implications
        for number in sorted(drawn):
            for port in range(layout.shapes[number].outputs):
                here = self._end(graph, ident, number, port, outward=True)
                for target in layout.targets_of(number, port):
                    node, _, inlet = layout.describe(target)
                    if node in drawn:
                        there = self._end(graph, ident, node, inlet, outward=False)
                        frontier = _text(_frontier(implications[target].elements()))
                        yield f'{here} -->|"{frontier}"| {there}'

    def _end(self, graph: Subgraph, ident: str, number: int, port: int, *, outward: bool) -> str:
        """Return the name of an end of an edge: an operator, or an entrance or exit, seen from within or without."""
        inner = f"{ident}_{number}" if ident else str(number)
        if number == 0:
            return f"{'i' if outward else 'o'}{ident}_{port}"
        if isinstance(graph.children[number], Subgraph):
            return f"{'o' if outward else 'i'}{inner}_{port}"
        return f"n{inner}"


def _count(graph: Subgraph) -> int:
    """Return how many operators and scopes there are within a scope."""
    return sum(1 + (_count(child) if isinstance(child, Subgraph) else 0) for _, child in graph.blueprint.nodes())


def _feeding(graph: Subgraph) -> dict[int, str]:
    """Return for each input of a scope's nodes what feeds it: of an operator with several outputs, which of them."""
    layout = graph.tracker.graph
    feeding = {}
    for number, shape in enumerate(layout.shapes):
        for port in range(shape.outputs):
            name = f"in {port}" if number == 0 else _short(graph.blueprint.names[number])
            for target in layout.targets_of(number, port):
                feeding[target] = f"{name} [{port}]" if number and shape.outputs > 1 else name
    return feeding


def _box(graph: Subgraph, number: int, depth: int, note: str, feeding: dict[int, str]) -> Box:
    layout, tracker, child = graph.tracker.graph, graph.tracker, graph.children[number]
    inputs = [layout.target(number, port) for port in range(min(layout.shapes[number].inputs, LARGEST))]
    outputs = [layout.source(number, port) for port in range(min(layout.shapes[number].outputs, LARGEST))]
    return Box(
        path=f"{graph.path}/{graph.blueprint.names[number]}",
        name=graph.blueprint.names[number],
        depth=depth,
        sources=tuple(feeding.get(target, "nothing") for target in inputs),
        frontiers=tuple(_frontier(tracker.implications[target].elements()) for target in inputs),
        held=tuple(_frontier(times) for at in outputs if (times := tracker.pointstamps[at].elements())),
        waiting=sum(map(len, child.inputs)) if isinstance(child, Operator) else 0,
        note=note,
    )


def _frontier(times: Iterable[Time]) -> str:
    """Return a frontier in few words.

    >>> _frontier([3]), _frontier([]), _frontier([(0, 4), (1, 3), (2, 2), (3, 1)])
    ('[3]', 'done', '[(0, 4), (1, 3), (2, 2), 1 more]')
    """
    shown = [_short(repr(time)) for time in times]
    more = [f"{len(shown) - 3} more"] if len(shown) > 3 else []
    return f"[{', '.join(shown[:3] + more)}]" if shown else "done"


def _short(text: str) -> str:
    """Return a text on one line and not too long, with everything in it to be seen.

    >>> _short("or\\nders"), _short("x" * 100)[-5:]
    ('or\\\\nders', 'xxxx…')
    """
    seen = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: _LONGEST + 1])
    return seen if len(text) <= _LONGEST else seen[: _LONGEST - 1] + "…"


def _text(text: str) -> str:
    """Return a text for a quoted label of Mermaid, with every special character as a numbered entity.

    >>> _text('a "b" <i>')
    'a #34;b#34; #60;i#62;'
    """
    return "".join(c if c.isalnum() or c in _PLAIN else f"#{ord(c)};" for c in _short(text))
