"""Performers: the code that does what effects ask for. A performer knows its effect and nothing of dialects or runs."""
