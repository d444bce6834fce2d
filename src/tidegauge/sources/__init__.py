"""Sources: probe, plan, read, acknowledge."""
