"""Readers for data formats that record the line of each value, and checks on those values."""
