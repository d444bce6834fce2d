"""Spark's own door: `format("tidegauge")`, an output as a table of a Spark session, and as a stream of its epochs."""
