"""Readers for data formats, whose values know their line, and checks on those values."""
