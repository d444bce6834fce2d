"""Looking at a dataflow that runs: who holds a frontier back, its picture, its event log."""
