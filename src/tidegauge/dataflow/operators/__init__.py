"""The operators that every dataflow needs, each built on the operator builder."""
