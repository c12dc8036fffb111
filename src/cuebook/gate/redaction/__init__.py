"""Takes secrets out of everything that is about to be stored or shown, in whatever form they are written there.

`spellings` are the ways to write a character, `forms` those to write a secret; `finding` looks for these in a text, and
`values` in whatever else there is.
"""

from __future__ import annotations

from cuebook.gate.redaction.redactor import SecretRedactor

__all__ = ["SecretRedactor"]
