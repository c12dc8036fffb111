"""Cuebook: one durable runtime for AI playbooks."""

__version__ = "0.1.0"
