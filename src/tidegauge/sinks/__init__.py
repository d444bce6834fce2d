"""Sinks: stage in tasks, commit in the driver."""
