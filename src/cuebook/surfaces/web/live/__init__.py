"""The live page of a run and its event stream."""
