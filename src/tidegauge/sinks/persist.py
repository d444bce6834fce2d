"""The persist sink: commits what was staged for one output, span by span, and reports the output's upper.

Invariants. A commit covers everything from the table's own upper on, so the table's uppers are contiguous; epochs in
which the output's source holds nothing are *vacuous*: by law 1 their content is known to be empty, and the next
commit covers them. The capability of a span is kept until the span is committed, so the frontier of the output is
what is held durably. The table is compared, not trusted: see `decide`.

A table that refuses for good fails its output alone: the operator lets go of what it holds, on purpose, so that the
others are published without it, and of what still comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from tidegauge.dataflow import Capability, OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Stream
from tidegauge.env import Env
from tidegauge.errors.base import Definite, TidegaugeError, Transient, brief
from tidegauge.errors.running import OutputNotWritable, SpanConflict
from tidegauge.sinks.protocol import StagedFile, Table

__all__ = ["ATTEMPTS", "Committed", "FailureLog", "Manifest", "OutputFailed", "OutputWatcher", "decide", "persist"]

ATTEMPTS = 8
"""How often a commit is tried before the flow stops: about half a minute."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was staged for one output for the epochs `[lower, upper)`. Without a `schema` the span is vacuous."""

    lower: int
    upper: int
    job: str = ""
    schema: pa.Schema | None = None
    files: tuple[StagedFile, ...] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """The output holds every epoch before `upper`."""

    output: str
    upper: int
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class OutputFailed:
    """An output has failed for a reason of its own: it holds the epochs before `epoch` and no more."""

    output: str
    epoch: int
    error: TidegaugeError


class FailureLog(Protocol):
    """Makes the failures of outputs durable, and takes them back."""

    def failed(self, failure: OutputFailed) -> None:
        """Note that an output has failed."""
        ...

    def passed(self, output: str, upper: int) -> None:
        """Note that an output's table holds every epoch before `upper`."""
        ...


class OutputWatcher(Protocol):
    """Is told what happens to an output, for people."""

    def committed(self, committed: Committed) -> None: ...  # noqa: D102
    def stalled(self, output: str, error: Exception, attempt: int) -> None: ...  # noqa: D102


def decide(table_upper: int, manifest: Manifest) -> Literal["commit", "held", "behind", "inside"]:
    """Say what to do with a manifest, given the table's upper (reference: reclocking 5.3).

    held: all of it is in the table already (an earlier attempt, whose outcome was not seen). commit: the table ends
    at or before the manifest's lower, and what lies between is vacuous. inside: the table ends within the span:
    somebody else committed other spans than ours.

    >>> [decide(upper, Manifest(5, 8)) for upper in (3, 5, 6, 8)]
    ['commit', 'commit', 'inside', 'held']
    """
    if table_upper >= manifest.upper:
        return "held"
    return "commit" if table_upper <= manifest.lower else "inside"


def persist(
    manifests: Stream[Manifest],
    *,
    output: str,
    table: Table,
    env: Env,
    confirm: Callable[[], None],
    backoff: Callable[[int], float],
    failures: FailureLog,
    watcher: OutputWatcher,
) -> Stream[Committed]:
    """Build the operator for one output. `confirm` raises when this driver is no longer to write."""
    builder = OperatorBuilder(manifests.scope, f"persist {output}")
    builder.input(manifests)
    committed: Stream[Committed] = builder.output()

    def build(context: OperatorContext) -> Callable[[list[OperatorInput], list[OperatorOutput]], None]:
        context.capabilities[0].drop()
        waiting: deque[tuple[Capability, Manifest]] = deque()
        attempt = 0
        quiet_until = float("-inf")
        over = False

        def commit(manifest: Manifest) -> None:
            if manifest.schema is None:
                return
            verdict = decide(table.upper, manifest)
            if verdict == "held":
                table.discard(manifest.files)
            elif verdict == "commit":
                with env.effect("commit output"):
                    confirm()  # a table compares its upper, and knows nothing of who may write
                    table.commit(table.upper, manifest.upper, manifest.schema, manifest.files, write=manifest.job)
            else:
                confirm()
                last = manifest.upper - 1
                raise SpanConflict(output=output, lower=manifest.lower, last=last, actual=table.upper)
            failures.passed(output, table.upper)

        def let_go() -> None:
            while waiting:
                capability, manifest = waiting.popleft()
                with suppress(OSError, TidegaugeError):  # what stays is litter, and the table has said what is wrong
                    table.discard(manifest.files)
                capability.drop()

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            nonlocal attempt, quiet_until, over
            for message, batch in inputs[0].drain():
                waiting.extend((message.retain(), manifest) for manifest in batch)
            if over:
                let_go()
            while waiting:
                if (wait := quiet_until - env.monotonic()) > 0:
                    context.activator.activate_after(wait)
                    return
                capability, manifest = waiting[0]
                try:
                    commit(manifest)
                except (OSError, Transient) as error:
                    attempt += 1
                    if attempt >= ATTEMPTS:
                        raise OutputNotWritable(output=output, attempts=attempt, detail=brief(error)) from error
                    watcher.stalled(output, error, attempt)
                    quiet_until = env.monotonic() + backoff(attempt)
                    continue
                except Definite as error:
                    failures.failed(OutputFailed(output, manifest.lower, error))
                    over = True
                    let_go()
                    return
                attempt = 0
                waiting.popleft()
                done = Committed(output, manifest.upper, manifest.rows, sum(file.bytes for file in manifest.files))
                watcher.committed(done)
                outputs[0].give(capability, [done])
                capability.drop()

        return step

    builder.build(build)
    return committed
