"""Measurements of Tidegauge, beside its peers where it has any. `python -m benchmarks` runs them all.

Each module named in `__main__.BENCHMARKS` has one function `measure(room) -> list[Figure]` and runs in a process of
its own. Peers are measured in the same process, on the same session and the same files, or, those in `peers`, in a
process of their own on the same input; always in turns (A B A B ...), so that what the machine does meanwhile meets
both. Nothing here is a test: no figure makes a run fail.
"""
