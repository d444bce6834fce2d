"""One job of an engine: which epochs it is for, its tasks, and what its result means for each output."""
