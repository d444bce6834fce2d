"""A flow whose store is lost, put back to an older copy, or changed behind its back, and what its tables then say."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import tidegauge as tg

__all__ = ["Shop", "sinks"]


def sinks(kind: str) -> Callable[[str], tg.DeltaSink | tg.ParquetSink]:
    """Return what makes a sink of a kind at a path."""
    return tg.DeltaSink if kind == "delta" else tg.ParquetSink


@dataclass
class Shop:
    """A flow over files of one number a line. `outputs` are those that it has now, each with the kind of its sink."""

    root: Path
    outputs: dict[str, str] = field(default_factory=lambda: {"orders": "parquet"})
    store: str = ""

    def __post_init__(self) -> None:
        self.store = self.store or f"sqlite:///{self.root}/shop.db"
        (self.root / "in").mkdir(exist_ok=True, parents=True)

    def flow(self, *only: str) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=self.store, tick=0.01)
        orders = flow.source("orders", tg.FileSource(f"{self.root}/in/*.jsonl", format=tg.Json("id long")))
        for name, kind in self.outputs.items():
            if not only or name in only:
                flow.sink(name, orders, sinks(kind)(f"{self.root}/lake/{name}"))
        return flow

    def write(self, *numbers: int, file: str = "a") -> None:
        with (self.root / "in" / f"{file}.jsonl").open("a") as out:
            out.writelines(json.dumps({"id": number}) + "\n" for number in numbers)

    def run(self, *numbers: int, only: tuple[str, ...] = ()) -> tg.Dataflow:
        """Let a run find each of the numbers, so that each has an epoch of its own."""
        flow = self.flow(*only)
        for number in numbers:
            self.write(number)
            flow.run("caught-up", engine=tg.LocalEngine(threads=0))
        return flow

    def again(self, *only: str, env: tg.Env | None = None) -> None:
        """Run once more, with what is there."""
        self.flow(*only).run("caught-up", engine=tg.LocalEngine(threads=0), env=env)

    def rows(self, output: str = "orders") -> Counter[int]:
        return Counter(tg.read_arrow(self.flow(), output).column("id").to_pylist())

    # -- what happens to the store, which is a file

    @property
    def file(self) -> Path:
        return Path(self.store.removeprefix("sqlite:///"))

    def copy(self, name: str = "copy") -> Path:
        """Take a copy of the store while nobody has it open."""
        with closing(sqlite3.connect(self.file)) as there, closing(sqlite3.connect(self.root / name)) as here:
            there.backup(here)
        return self.root / name

    def put_back(self, copy: Path) -> None:
        self.lose()
        shutil.copy(copy, self.file)

    def lose(self) -> None:
        for path in self.root.glob(f"{self.file.name}*"):
            path.unlink()
