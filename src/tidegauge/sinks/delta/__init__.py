"""A Delta table as an output: its log, its files, and what its commits keep of the history."""
