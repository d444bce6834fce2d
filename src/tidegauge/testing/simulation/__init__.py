"""A flow in one thread, from a seed: its upstreams, its store, its tables and its drivers."""
