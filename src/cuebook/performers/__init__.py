"""Performers: the code that does what effects ask for. A performer knows its effect, but no dialects or runs."""
