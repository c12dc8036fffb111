"""Dialects: each parses a text into a document and interprets that document as a program.

`Dialect` and `Document` are what a further dialect subclasses, and `register` adds it.
"""

from __future__ import annotations

from cuebook.dialects.dialect import Dialect, Document
from cuebook.dialects.registry import detect, dialects, named, recognised, register

__all__ = ["Dialect", "Document", "detect", "dialects", "named", "recognised", "register"]
