"""Parses the replies of a model: steps, calls, variables, messages."""
