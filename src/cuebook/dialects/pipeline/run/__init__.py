"""Runs a pipeline."""
