"""HTTP requests: what performs them, and which addresses they may reach."""
