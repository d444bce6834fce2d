"""Many sources, one durable timeline of epochs, many tables that agree, exactly once."""
