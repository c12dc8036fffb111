"""The gate: everything between a yielded effect and its performer."""
