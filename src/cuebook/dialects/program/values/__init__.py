"""Expressions of programs and their values."""
