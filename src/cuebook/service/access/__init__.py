"""Who may see which runs, and who signs in."""
