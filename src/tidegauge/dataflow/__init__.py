"""The timely core: orders, antichains, progress tracking, capabilities, workers, operators."""
