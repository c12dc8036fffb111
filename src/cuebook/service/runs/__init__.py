"""Runs as surfaces show them: views, JSON objects, and comparisons of two runs."""
