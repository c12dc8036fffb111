"""Paired machines: who they are, and their connections."""
