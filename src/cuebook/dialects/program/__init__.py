"""The program dialect: natural-language programs whose control flow is verified."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuebook.dialects.program.check.listing import lint
    from cuebook.dialects.program.dialect import PROGRAM
    from cuebook.dialects.program.listing import Listing, Position
    from cuebook.dialects.program.reply.reader import Reply, ReplyError, ReplyReader, parse_reply
    from cuebook.dialects.program.verify.corrections import Retry, retry_of
    from cuebook.dialects.program.verify.verdicts import State, Verdict, Verdicts
    from cuebook.dialects.program.verify.verifier import Verifier, verify_reply

__all__ = [
    "PROGRAM",
    "Listing",
    "Position",
    "Reply",
    "ReplyError",
    "ReplyReader",
    "Retry",
    "State",
    "Verdict",
    "Verdicts",
    "Verifier",
    "lint",
    "parse_reply",
    "retry_of",
    "verify_reply",
]

_MODULES = {
    "dialect": ("PROGRAM",),
    "check.listing": ("lint",),
    "listing": ("Listing", "Position"),
    "reply.reader": ("Reply", "ReplyError", "ReplyReader", "parse_reply"),
    "verify.corrections": ("Retry", "retry_of"),
    "verify.verdicts": ("State", "Verdict", "Verdicts"),
    "verify.verifier": ("Verifier", "verify_reply"),
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load parsing and verification on first use: most runs use other dialects."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
