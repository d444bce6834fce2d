"""The flow of `store` over a MySQL, for a search of its worlds."""

from tests.simulation.store import of_mysql as make_flow

__all__ = ["make_flow"]
