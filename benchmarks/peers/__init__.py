"""Peers that are measured in processes and environments of their own, made when they are first asked for.

No peer is a dependency of the project, and nothing of the project is imported there: what both sides need, the input
and the functions that users would write, is in `readings`, which needs nothing but Python 3.9.
"""
