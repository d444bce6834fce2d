"""Engines: where the rows flow."""
