"""Tests of `cuebook node`."""
