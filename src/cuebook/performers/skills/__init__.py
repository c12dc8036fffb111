"""Skills: tools for well-known services, written down as tables of requests, and instructions that lie in files.

Their requests go through the HTTP performer, so that checks, limits and previews are the same whoever asks.
"""

from __future__ import annotations

from cuebook.performers.skills.library import BUILT_IN, Configured, Skills

__all__ = ["BUILT_IN", "Configured", "Skills"]
