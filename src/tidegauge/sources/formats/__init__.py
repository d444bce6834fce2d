"""Formats: how bytes become rows."""
