"""The dataflow DSL: sources, streams and sinks, joined into a flow."""
