"""Every kind of step, source, sink and mistake is drawn, and most of the outputs have rows."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import Phase, given, settings
from tests.engine.drawn import drawing
from tests.engine.drawn.agreeing import closing
from tests.engine.drawn.described import FRAMES, FUNCTIONS, Described, write
from tests.engine.drawn.drawing import WORDS, described
from tests.engine.drawn.outcomes import Outcome, outcome
from tests.engine.plain.texts import SLOW

import tidegauge as tg

STEADY = settings(derandomize=True, deadline=None, phases=[Phase.generate], suppress_health_check=SLOW)


def drawn(count: int) -> list[Described]:
    """Return flows, the same ones each time."""
    found: list[Described] = []

    @settings(STEADY, max_examples=count)
    @given(described())
    def collect(flow: Described) -> None:
        found.append(flow)

    collect()
    return found


def test_every_step_source_sink_and_expression_is_drawn() -> None:
    flows = drawn(1000)
    outputs = [output for flow in flows for output in flow.outputs]
    steps = [step for output in outputs for step in output.steps]
    words = Counter(word for word, *_ in steps)
    assert set(words) == set(WORDS)
    assert min(words.values()) >= 20, words
    assert {step[1] for step in steps if step[0] == "map_batches"} == set(FUNCTIONS)
    assert {step[1] for step in steps if step[0] == "transform"} == set(FRAMES)
    assert {output.source for output in outputs} == {"a", "b", "both", "a.errors", "both.errors"}
    assert {output.sink.split()[0] for output in outputs} == {"parquet", "delta", "memory", "upsert"}
    texts = "\n".join(str(part) for step in steps if step[0] in {"filter", "select"} for part in step[1:])
    for pool in (drawing.LISTED, drawing.SPARK, drawing.MAY_FAIL):
        templates = [template for found in pool.values() for template in found]
        seen = [template for template in templates if re.search(_pattern(template), texts)]
        assert len(seen) >= len(templates) * 2 // 3, set(templates) - set(seen)


def _pattern(template: str) -> str:
    return ".+?".join(map(re.escape, re.split(r"\{\w+\}", template)))


def test_most_outputs_have_rows_and_the_others_fail_in_every_way() -> None:
    """On the local engine, which gives the same however many threads it has."""
    found: list[Outcome] = []
    for flow in drawn(18):
        with tempfile.TemporaryDirectory() as folder:
            files = Path(folder) / "in"
            write(flow, files)
            ways = []
            for threads in (0, 2):
                with closing(tg.LocalEngine(threads=threads)) as engine:
                    ways.append(outcome(flow, files, Path(folder) / str(threads), engine))
            assert ways[0] == ways[1]
            found.append(ways[0])
    refused = Counter(code for one in found for code in one.refused.values())
    failed = Counter(code for one in found for code, _ in one.failed.values())
    assert refused["TG-0106"] > 20
    assert {"TG-0110", "TG-0506", "TG-0507", "TG-0871"} <= set(failed), failed
    tables = [rows for one in found for rows in one.rows.values()]
    assert sum(map(bool, tables)) > len(tables) * 3 / 4
    epochs = [{row.rpartition(", ")[2] for row in rows} for rows in tables]
    assert sum(len(found) > 1 for found in epochs) > len(epochs) / 3
    beside = [one for one in found if one.failed and len(one.rows) > len(one.failed)]
    assert len(beside) > 3, "the other outputs go on"
