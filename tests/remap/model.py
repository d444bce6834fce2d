"""The remap table by its definition: R is the list of what was bound to which epoch, T(e) what is not beyond R(e)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegauge.remap.frontier import ORIGIN, Frontier

__all__ = ["Model"]


@dataclass
class Model:
    """R, as the list of the bindings that were made."""

    bindings: list[tuple[int, Frontier]] = field(default_factory=list)
    upper: int = 0

    def bind(self, epoch: int, frontier: Frontier) -> None:
        self.bindings.append((epoch, frontier))
        self.upper = epoch + 1

    def at(self, epoch: int) -> Frontier:
        """R(e)."""
        return next((frontier for bound, frontier in reversed(self.bindings) if bound <= epoch), ORIGIN)

    def has(self, epoch: int, partition: str, position: int) -> bool:
        """Whether a record is in T(e)."""
        frontier = self.at(epoch)
        return frontier.sealed or position < frontier[partition]

    def epoch_of(self, partition: str, position: int) -> int | None:
        """The first epoch whose T has the record: T grows only where something is bound."""
        return next((epoch for epoch, _ in self.bindings if self.has(epoch, partition, position)), None)

    def copy(self) -> Model:
        return Model(list(self.bindings), self.upper)
