"""Playbooks written as Python functions, run in a child process."""
