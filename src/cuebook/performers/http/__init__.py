"""HTTP requests and their performer."""
