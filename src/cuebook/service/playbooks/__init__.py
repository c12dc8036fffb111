"""Playbooks in folders: the library, the stored playbooks, and the runs of each playbook."""
