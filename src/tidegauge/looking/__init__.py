"""Looking at a flow from outside: its status, its epochs and bindings, its rows, and where each came from."""
