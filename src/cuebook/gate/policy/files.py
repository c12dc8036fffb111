"""Paths as rules see them: `read:PATH` or `write:PATH`, relative to the workspace. No file is looked at here."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import normpath

from cuebook.gate.policy.bundle import Decision
from cuebook.gate.policy.patterns import fits_path

MODES = ("read", "write")


class FileTarget:
    def __init__(self, target: str) -> None:
        self.mode, _, self.path = target.partition(":")
        parts = self.path.split("/")
        self.flawed = self.mode not in MODES or not self.path or "\0" in self.path or ".." in parts
        self.outside = self.path.startswith("/")
        self._meant = normpath(self.path).replace("//", "/") if self.path else ""

    def caught_by(self, pattern: str) -> bool:
        mode, path = split(pattern)
        return mode in (None, self.mode) and (fits_path(path, self.path) or fits_path(path, self._meant))

    def allowed_by(self, patterns: Sequence[str]) -> tuple[int, ...]:
        return next(((number,) for number, pattern in enumerate(patterns) if self._allowed(pattern)), ())

    @property
    def built_in(self) -> tuple[Decision, str]:
        if self.flawed or self.outside:
            return "deny", "what lies outside of the workspace is denied"
        if self.mode == "read":
            return "allow", "reading in the workspace is allowed"
        return "ask", "writing in the workspace is asked about"

    def _allowed(self, pattern: str) -> bool:
        mode, path = split(pattern)
        # `**` means the workspace: what lies outside must be written out as such.
        if self.flawed or mode not in (None, self.mode) or self.outside != path.startswith("/"):
            return False
        return fits_path(path, self._meant)


def split(pattern: str) -> tuple[str | None, str]:
    """The mode a pattern is about, or None for both, and its path."""
    mode, colon, path = pattern.partition(":")
    if colon and mode in (*MODES, "*"):
        return (None if mode == "*" else mode), path
    return None, pattern
