"""Moving ranges and frontiers from one clock to the other."""
