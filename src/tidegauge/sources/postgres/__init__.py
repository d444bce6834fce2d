"""PostgreSQL as a source: its tables as they were at one place of its log, and every transaction since."""
