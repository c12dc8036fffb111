"""Verifies a reply against the listing: what it may do next, and what the runtime can compute."""
