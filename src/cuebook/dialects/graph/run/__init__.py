"""Runs a workflow graph."""
