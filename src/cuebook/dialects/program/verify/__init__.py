"""Verifies a reply against the listing and the values that the runtime can compute."""
