"""Runs in other places: backups, exported files and other stores."""
