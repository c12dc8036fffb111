"""Evidence of what a run did, and the export of runs as files."""
