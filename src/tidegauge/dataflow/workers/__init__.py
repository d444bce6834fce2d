"""Several workers that run the same dataflows: how they exchange letters, step side by side, and agree.

Programs on the core use it, by `execute` and `DeterministicCluster`. A flow has one worker and never enters it; the
core itself takes the names of addresses and letters from `mailbox`.
"""
