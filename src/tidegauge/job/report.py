"""What tasks say of their work: one small JSON text each, merged into the result of the job.

Invariant: reports are plain JSON data. Nothing that a task made is unpickled in the driver.

>>> one = Report(records={"orders": 2}, bytes_read={"orders": 64})
>>> two = Report.decode(one.encode())
>>> merge([one, two], ["large"]).records, merge([one, two], ["large"]).staged["large"].files
({'orders': 4}, ())
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidegauge.errors.base import TidegaugeError
from tidegauge.job.plan import JobResult, Staged
from tidegauge.remap.round import Failure
from tidegauge.sinks.protocol import StagedFile

__all__ = ["Report", "decode_failure", "encode_failure", "merge"]


def encode_failure(failure: Failure) -> dict[str, Any]:
    """Return a failure as JSON data."""
    return {
        "source": failure.source,
        "output": failure.output,
        "epoch": failure.epoch,
        "error": failure.error.encode(),
    }


def decode_failure(data: dict[str, Any]) -> Failure:
    """Return the failure that `encode_failure` described."""
    return Failure(data["source"], data["output"], int(data["epoch"]), TidegaugeError.decode(data["error"]))


@dataclass(slots=True)
class Report:
    """One task's account: files by output, records and bytes by source, failures in order."""

    staged: dict[str, list[StagedFile]] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    bytes_read: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def failed(self, source: str) -> bool:
        """Whether reading the source has failed, so that none of its outputs is complete."""
        return any(failure.source == source and failure.output is None for failure in self.failures)

    def encode(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(
            {
                "staged": {name: [file.encode() for file in files] for name, files in self.staged.items()},
                "records": self.records,
                "bytes_read": self.bytes_read,
                "failures": [encode_failure(failure) for failure in self.failures],
            }
        )

    @staticmethod
    def decode(text: str) -> Report:
        """Return the report that `encode` described."""
        data = json.loads(text)
        return Report(
            staged={name: [StagedFile.decode(f) for f in files] for name, files in data["staged"].items()},
            records={name: int(n) for name, n in data["records"].items()},
            bytes_read={name: int(n) for name, n in data["bytes_read"].items()},
            failures=[decode_failure(failure) for failure in data["failures"]],
        )


def merge(reports: Iterable[Report], outputs: Iterable[str]) -> JobResult:
    """Return the job's result. Every output of the job is named in it, also one that got no row.

    An output with a failure keeps the files that its other tasks staged, so that the caller can discard them.
    """
    files: dict[str, list[StagedFile]] = {name: [] for name in outputs}
    records: dict[str, int] = {}
    bytes_read: dict[str, int] = {}
    failures: list[Failure] = []
    for report in reports:
        for name, staged in report.staged.items():
            files[name] += staged
        for source, count in report.records.items():
            records[source] = records.get(source, 0) + count
        for source, count in report.bytes_read.items():
            bytes_read[source] = bytes_read.get(source, 0) + count
        failures += report.failures
    staged_by_output = {name: Staged(tuple(found), sum(f.rows for f in found)) for name, found in files.items()}
    return JobResult(staged_by_output, tuple(failures), records, bytes_read)
