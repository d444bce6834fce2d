"""The flow of `joined_mysql` over a MySQL 5.6, for a search of its worlds."""

from tests.simulation.joined_mysql import FAULTS
from tests.simulation.joined_mysql import of_mysql as make_flow

__all__ = ["FAULTS", "make_flow"]
