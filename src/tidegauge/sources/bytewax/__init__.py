"""Connectors of bytewax as sources."""
