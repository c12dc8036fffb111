"""The playbooks that people keep: the library, the stored ones, and the runs of each."""
