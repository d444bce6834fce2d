"""A sink under trial on its bench: short words for what a flow does with it, and the rows that must then be there.

Invariant: staging goes through copies, as in tasks: a pickled sink, and files as the JSON that they travel as.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.remap.history import History, Link, Moves, follow, origin
from tidegauge.sinks.protocol import OutputId, Sink, StagedFile, Sweeping, Table, job_mark
from tidegauge.testing.kit.rows import Row, same
from tidegauge.testing.kit.sink_bench import ROWS, SinkBench
from tidegauge.testing.kit.trial import expect

__all__ = ["OTHER_LIFE", "OTHER_OUTPUT", "OUTPUT", "SinkOnTrial", "digests", "history", "job", "rows"]

OUTPUT: Final = OutputId("shop", "orders", "a" * 32)
OTHER_LIFE: Final = replace(OUTPUT, incarnation="b" * 32)
OTHER_OUTPUT: Final = replace(OUTPUT, output="clicks")


def job(output: OutputId = OUTPUT) -> str:
    """Return the name of a new job, or of an attempt at a commit."""
    return job_mark(output.incarnation) + uuid.uuid4().hex[:16]


def rows(epochs: Iterable[int], user: str = "ada") -> list[dict[str, Any]]:
    """Return a row for each epoch."""
    return [{"user": user, "amount": 1.5, "_epoch": epoch} for epoch in epochs]


def digests(upper: int) -> list[str]:
    """Return the digests of a flow's history, after 0 to `upper` epochs."""
    found = [origin(OUTPUT.incarnation)]
    for epoch in range(upper):
        found.append(follow(found[-1], {"app": Moves(positions={"p0": epoch + 1})}))
    return found


def history(lower: int, upper: int, *, before: str = "") -> History:
    """Return the history of the epochs `[lower, upper)`. before: another digest that they come after."""
    found = digests(upper)
    links = tuple(
        Link(
            epoch=epoch,
            digest=found[epoch + 1],
            minted_at=datetime(2026, 1, 1, tzinfo=UTC),
            sources={"app": Moves(positions={"p0": epoch + 1})},
        )
        for epoch in range(lower, upper)
    )
    return History(links, before or found[lower])


@dataclass
class SinkOnTrial:
    """A sink, the bench that it is on, and the folder of the trial. make: makes another bench."""

    bench: SinkBench
    folder: Path
    make: Callable[[Path], SinkBench]
    others: list[SinkOnTrial] = field(default_factory=list)

    @property
    def sink(self) -> Sink:
        """The sink on trial."""
        return self.bench.sink

    def another(self) -> SinkOnTrial:
        """Return another place, where there is nothing yet."""
        folder = self.folder / f"another-{len(self.others)}"
        folder.mkdir()
        self.others.append(SinkOnTrial(self.make(folder), folder, self.make))
        return self.others[-1]

    def close(self) -> None:
        """Tidy up."""
        for one in (*self.others, self.bench):
            closing = getattr(one, "close", None)
            if closing is not None:
                closing()

    def names(self) -> set[str]:
        """Return the files in the folder of the trial."""
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def open(self, output: OutputId = OUTPUT) -> Table:
        """Open the table, as a run does when it begins: the sink has looked at the columns before."""
        self.sink.check(ROWS)
        return self.sink.open(output)

    def driven(self, output: OutputId = OUTPUT) -> Table:
        """Open the table as the next driver does, which clears up first."""
        table = self.sink.open(output)
        if isinstance(table, Sweeping):
            table.sweep(lambda: None)
        return table

    def stage(
        self, epochs: Iterable[int], user: str = "ada", *, task: int = 0, output: OutputId = OUTPUT
    ) -> list[StagedFile]:
        """Stage a row for each epoch, as a task does."""
        sink: Sink = pickle.loads(pickle.dumps(self.sink))  # noqa: S301 (our own, from the line itself)
        stager = sink.stage(ROWS, job=job(output), task=task)
        stager.write(pa.RecordBatch.from_pylist(rows(epochs, user), schema=ROWS))
        return [StagedFile.decode(json.loads(json.dumps(file.encode()))) for file in stager.close()]

    def commit(
        self, table: Table, lower: int, upper: int, user: str = "ada", *, output: OutputId = OUTPUT
    ) -> Sequence[StagedFile]:
        """Stage a row for each epoch and commit them; return the staged files."""
        files = self.stage(range(lower, upper), user, output=output)
        table.commit(lower, upper, ROWS, files, write=job(output), history=history(lower, upper))
        return files

    def shows(self, wanted: Sequence[Row], upper: int, when: str) -> None:
        """Raise `LawBroken` unless a reader sees these rows, and a table opened now says this upper."""
        found = list(self.bench.rows())
        names = [name for name in ROWS.names if not found or name in found[0]]
        same([{name: row[name] for name in names} for row in wanted], found, when)
        seen = self.open().upper
        expect(seen == upper, f"{when}: the upper is {seen}, and should be {upper}")
