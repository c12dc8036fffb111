"""Commands: checked, found on this machine, previewed for approval, and run in a sandbox."""

from __future__ import annotations

from cuebook.performers.commands.performer import CommandPerformer

__all__ = ["CommandPerformer"]
