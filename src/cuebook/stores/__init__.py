"""Stores for journals. One protocol (`cuebook.kernel.ports.Store`) with a SQLite and an in-memory implementation."""
