"""Runs a Markdown playbook."""
