"""A flow as it runs: its frozen spec, opening, rendering into a timely dataflow, and the runner that steps it."""
