"""The pipeline: the DSL, its rendering into a timely dataflow, engines, the runner."""
