"""What a check found, law by law, as a value and in words.

Invariant: a report is about the connector alone. It raises nothing by itself, and says of a law either that it held,
or how it was broken, or why it could not be tried.

>>> back = LawFinding("a look never goes back", "No position is behind ...", "Start from ...", example="3 after 5")
>>> report = ConnectorReport("JournalSource", (LawFinding("it is a value"), back))
>>> report.ok, [finding.name for finding in report.broken]
(False, ['a look never goes back'])
>>> print(report)
JournalSource: 1 law held, 1 broken, 0 not tried
  held       it is a value
  BROKEN     a look never goes back
             the law:    No position is behind ...
             example:    3 after 5
             what to do: Start from ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegauge.errors.testing import LawsBroken

__all__ = ["ConnectorReport", "LawFinding"]


@dataclass(frozen=True, slots=True)
class LawFinding:
    """One law: broken if there is an example, not tried if there is a reason (`untried`), held otherwise.

    law, remedy: the law in words, and what to do for it.
    """

    name: str
    law: str = ""
    remedy: str = ""
    example: str = ""
    untried: str = ""

    @property
    def broken(self) -> bool:
        """Whether an example was found that breaks the law."""
        return bool(self.example)

    @property
    def held(self) -> bool:
        """Whether the law was tried, and no example found."""
        return not self.example and not self.untried

    def lines(self) -> Iterator[str]:
        """Yield the finding in words."""
        if self.broken:
            yield f"  BROKEN     {self.name}"
            for word, text in (("the law:", self.law), ("example:", self.example), ("what to do:", self.remedy)):
                yield f"             {word:<11} {text}"
        elif self.untried:
            yield f"  not tried  {self.name}: {self.untried}"
        else:
            yield f"  held       {self.name}"


@dataclass(frozen=True, slots=True)
class ConnectorReport:
    """What became of each law, in the order of the trials. `str` says it in words."""

    connector: str
    findings: tuple[LawFinding, ...]

    @property
    def ok(self) -> bool:
        """Whether no law was broken. A law that could not be tried is none."""
        return not self.broken

    @property
    def broken(self) -> tuple[LawFinding, ...]:
        """The laws that were broken."""
        return tuple(finding for finding in self.findings if finding.broken)

    def require(self) -> None:
        """Raise `LawsBroken`, with the report, unless every law that was tried held."""
        if not self.ok:
            raise LawsBroken(
                connector=self.connector, laws=[finding.name for finding in self.broken], report=str(self)
            )

    def __str__(self) -> str:
        held = sum(finding.held for finding in self.findings)
        untried = len(self.findings) - held - len(self.broken)
        counts = f"{held} law{'' if held == 1 else 's'} held, {len(self.broken)} broken, {untried} not tried"
        return "\n".join([f"{self.connector}: {counts}", *(line for one in self.findings for line in one.lines())])
