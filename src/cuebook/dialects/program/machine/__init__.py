"""Runs a program: the machine, its frames, and the turns of the model."""
