"""Masks secrets in everything that is about to be stored or shown, in whatever form they are written.

`encodings` has the forms of a secret, `search` finds them in a text, `redactor` masks them in texts and values, and
`logs` in log records.
"""

from __future__ import annotations

from cuebook.gate.redaction.redactor import SecretRedactor

__all__ = ["SecretRedactor"]
