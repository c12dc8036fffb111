"""Runs as surfaces show them: views, JSON objects, and the difference of two runs."""
