"""The desk of the command line's tests, for those that look at what a user of this dialect sees."""

from __future__ import annotations

from tests.surfaces.conftest import bare_desk, desk, server

__all__ = ["bare_desk", "desk", "server"]
