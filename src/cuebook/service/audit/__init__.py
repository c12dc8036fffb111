"""Evidence of what a run did, and runs exported as files."""
