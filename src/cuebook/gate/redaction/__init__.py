"""Masks secrets in everything that is about to be stored or shown, in whatever form they are written.

`encodings` lists the forms of a secret, `search` finds them in text, `redactor` masks them in strings and other values,
and `logs` in log records.
"""

from __future__ import annotations

from cuebook.gate.redaction.redactor import SecretRedactor

__all__ = ["SecretRedactor"]
