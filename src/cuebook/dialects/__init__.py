"""Dialects. Each one parses text into a document and interprets that document as a program.

To add a dialect, subclass `Dialect` and `Document` and call `register`.
"""

from __future__ import annotations

from cuebook.dialects.dialect import Dialect, Document
from cuebook.dialects.registry import detect, dialects, named, recognised, register

__all__ = ["Dialect", "Document", "detect", "dialects", "named", "recognised", "register"]
