"""A function of the user's as an output."""
