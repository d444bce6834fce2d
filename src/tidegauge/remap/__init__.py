"""The remap table: durable bindings from epochs to frontiers, their store, and the minting of new ones."""
