"""The core, and the parts that other figures rest on: frontiers, shapes, counting, workers, the timeline.

- `frontiers`: what it costs that time goes on, in chains, beside idle operators, in loops.
- `shapes`: a dataflow of very many ports, built and run to its end.
- `counting`: records through map, filter and a count by key, beside bytewax.
- `workers`: the same on several workers that exchange.
- `timeline`: minting, and the questions to a long timeline.
"""

from benchmarks.core import counting, frontiers, shapes, timeline, workers
from benchmarks.figures import Figure
from benchmarks.room import Room

__all__ = ["measure"]


def measure(room: Room) -> list[Figure]:
    """Measure them all, in less than three minutes."""
    figures: list[Figure] = []
    for part in (frontiers, shapes, counting, workers, timeline):
        room.say(part.__name__.rpartition(".")[2])
        figures += part.measure(room)
    return figures
