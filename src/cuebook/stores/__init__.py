"""Stores: where journals are kept. One protocol (`cuebook.kernel.ports.Store`), a file and an in-memory twin."""
