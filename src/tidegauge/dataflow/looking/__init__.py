"""Looking at a dataflow that runs: who holds a frontier back, its picture, its event log.

People use it, by `Worker.explain_stuck`, `Worker.draw` and `Worker(log=...)`, and so do tests. A flow never enters it
while it runs well: without `log=` nothing is recorded.
"""
