"""Files of the workspace: safe paths, digests, and the files next to a playbook."""
