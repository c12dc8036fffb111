"""Dispatch: how a run that has work to do reaches a process that can do it."""
