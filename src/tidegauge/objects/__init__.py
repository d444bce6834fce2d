"""Object stores: their addresses, reading and writing objects, and the meaning of refusals."""
