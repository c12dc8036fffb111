"""Drives runs: performs effects, appends outcomes, waits."""
