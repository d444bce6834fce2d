"""How a database of PostgreSQL is named and reached, for sources and sinks."""
