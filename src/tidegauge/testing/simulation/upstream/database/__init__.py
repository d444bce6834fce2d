"""Databases in memory, as servers whose logs are followed."""
