"""What is said again without another look at each file is what a look would say."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound, Observation
from tidegauge.sources.file import probing

NAMES = ("a.jsonl", "b.jsonl", "c.jsonl", "a.jsonl.1")
names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("append"), names),
    st.tuples(st.just("begin a line"), names),
    st.tuples(st.just("truncate"), names),
    st.tuples(st.just("rewrite"), names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("touch"), names),
    st.tuples(st.just("move"), names, names),
    st.tuples(st.just("nothing")),
)


def change(folder: Path, kind: str, name: str = "", other: str = "") -> None:
    path = folder / name
    if kind == "append" or (kind == "begin a line" and path.exists()):
        with path.open("a") as file:
            file.write('{"n": 1}\n' if kind == "append" else '{"n"')
    elif kind == "rewrite":  # another file of the same size, moved into its place
        new = folder / ".new"
        new.write_bytes(path.read_bytes() if path.exists() else b'{"n": 2}\n')
        new.replace(path)
    elif kind != "nothing" and path.exists():
        if kind == "truncate":
            path.write_bytes(b"")
        elif kind == "remove":
            path.unlink()
        elif kind == "touch":
            os.utime(path)
        else:
            path.replace(folder / other)


def holds_alike(source: tg.FileSource, other: tg.FileSource) -> None:
    """Let a source hold open the files that another one holds."""
    for key, fd in other.held._files.items():
        with os.fdopen(os.dup(fd), "rb") as stream:
            source.held.keep(key, stream)


def said(source: tg.FileSource, bound: Bound, now: datetime) -> Observation | type:
    try:
        return source.probe(bound, now=now)
    except (TidegaugeError, OSError) as error:
        return type(error)


@deep(25)
@given(st.lists(st.tuples(steps, st.booleans()), min_size=3, max_size=12))
def test_a_source_that_keeps_what_it_said_says_what_one_does_that_looks(
    plan: list[tuple[tuple[str, ...], bool]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder, bound = Path(root), Bound()
        kept = tg.FileSource(f"{folder}/*.jsonl", format=tg.Json("n long"), on_data_loss="gap")
        for step, binds in plan:
            change(folder, *step)
            now = datetime.now(UTC)
            fresh = tg.FileSource(kept.path, format=kept.format, on_data_loss="gap")
            holds_alike(fresh, kept)
            looked, probe = said(fresh, bound, now), said(kept, bound, now)
            assert probe == looked
            if isinstance(probe, Observation):
                bound = replace(bound, last=probe)
                if binds and probe.upper != bound.frontier:
                    details = {**bound.details, **probe.details}
                    bound = replace(bound, frontier=probe.upper, details=details, schema=bound.schema or probe.schema)


def test_files_that_are_as_they_were_are_listed_and_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, now = tmp_path / "a.jsonl", datetime(2026, 11, 20, tzinfo=UTC)
    log.write_text('{"n": 1}\n')
    source = tg.FileSource(f"{tmp_path}/*.jsonl", format=tg.Json("n long"))
    first = source.probe(Bound(), now=now)
    bound = Bound(frontier=first.upper, details=first.details, schema=first.schema, last=first)
    bound = replace(bound, last=source.probe(bound, now=now))
    with monkeypatch.context() as patch:
        patch.setattr(probing, "survey", None)
        patch.setattr("tidegauge.sources.file.source.survey", None)
        bound = replace(bound, last=source.probe(bound, now=now))
    with log.open("a") as file:
        file.write('{"n": 2}\n')
    assert source.probe(bound, now=now).upper != bound.frontier
