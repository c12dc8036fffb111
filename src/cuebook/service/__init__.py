"""The application layer that every surface calls."""
