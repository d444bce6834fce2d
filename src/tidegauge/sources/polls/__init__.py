"""Sources that are polled: their rows are staged in a log, and their state is kept in the binding."""
