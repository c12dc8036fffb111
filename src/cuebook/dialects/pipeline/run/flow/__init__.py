"""Runs lists of steps: in sequence, for each item of a list, in parallel branches, and with waits between them."""
