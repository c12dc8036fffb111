"""HTTP requests: their performer, and the addresses that they may reach."""
