"""Several workers that run the same dataflows: how they are woken, send each other letters, and agree."""
