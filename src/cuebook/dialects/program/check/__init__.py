"""Findings in a program, including those that do not prevent it from running."""

from cuebook.dialects.program.check.program import check

__all__ = ["check"]
