"""The composition root: configuration to performers, gate, store and service."""
