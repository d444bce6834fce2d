"""The remap table: durable bindings from epochs to frontiers, their store, and the minting of new ones.

A `Frontier` says where a source stands, an `Observation` what upstream says of itself; `mint` decides what a tick
binds, the `Store` makes it durable, and the `RemapTable` answers what belongs to which epoch.
"""
