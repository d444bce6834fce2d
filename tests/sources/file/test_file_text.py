"""FileSource on text: however a file grew or is split, its rows are the same; other encodings are refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegauge as tg
from tidegauge.errors.sources import UnreadableFile, WrongEncoding
from tidegauge.sources.formats.records import BOM


def read_all(flow: Any) -> Any:
    flow.tick()
    return flow.catch_up()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_that_says_it_is_in_another_encoding_is_refused(
    landing: Path, drive: Callable[..., Any], encoding: str, packed: bool, declared: bool, kind: str
) -> None:
    text = "\ufeff" * encoding.endswith("be") + ("a,b\n1,2\n" if kind == "csv" else '{"a": 1}\n{"a": 2}\n')
    path = landing / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(text.encode(encoding)) if packed else text.encode(encoding))
    made: Any = tg.Csv if kind == "csv" else tg.Json
    flow = drive(tg.FileSource(str(path), format=made("a long") if declared else made()))
    with pytest.raises(UnreadableFile, match=rf"{path} cannot be read.*as {encoding[:6].upper()} does") as refused:
        read_all(flow)
    assert refused.value.evidence["problem"] == WrongEncoding.code


def test_how_a_file_grew_and_how_it_was_split_does_not_show_in_its_rows(
    landing: Path, drive: Callable[..., Any]
) -> None:
    pieces = [BOM, b"\n", b"a,b\r", b"\n", BOM, b'x,"1\r', b"\n", BOM, b'"\r\n', BOM + b",\0\n", b'\n"', b'",2\n']
    source = tg.FileSource(f"{landing}/*", format=tg.Csv("a string, b string"), metadata=True)
    (landing / "whole").write_bytes(b"".join(pieces))
    whole = drive(source)
    whole.tick()
    grown = drive(tg.FileSource(f"{landing}/grown", format=source.format, metadata=True, split_bytes=1))
    for piece in pieces:
        with (landing / "grown").open("ab") as file:
            file.write(piece)
        grown.tick()
    expected = [(0, "\ufeffx", "1\r\n\ufeff"), (1, "\ufeff", "\0"), (2, "", "2")]
    for flow in (whole, grown):
        rows = flow.catch_up()
        assert [(i, row["a"], row["b"]) for i, row in enumerate(rows)] == expected
        assert flow.bad == []
