"""Data formats as values that know their line, and the checks on them."""
