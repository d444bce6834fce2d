"""Sail: SQL without Java, in this process, with Spark's rows."""
