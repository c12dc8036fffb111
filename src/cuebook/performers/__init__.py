"""Performers: the code that does what effects ask for. A performer depends on its effect, but not on dialects or runs."""
