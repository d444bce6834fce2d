"""Tables by key: changes are staged as runs, and merged into the files of a table."""
