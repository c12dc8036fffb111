"""The dispatcher that uses Temporal: one workflow for each run, which only delivers. It stores no content of runs."""
