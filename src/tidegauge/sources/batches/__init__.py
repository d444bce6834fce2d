"""Batches of Structured Streaming queries: how they are written down, and the source that reads them."""
