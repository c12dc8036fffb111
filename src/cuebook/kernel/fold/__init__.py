"""Everything that is computed from a journal: the state of its run, replay, retry and verification."""
