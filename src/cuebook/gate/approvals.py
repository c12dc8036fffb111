"""The preview shown to the user before an approval, and the digest that ties the approval to exactly that content.

A preview is plain text: nothing in it can colour, reorder or hide other text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from cuebook.kernel.context import Context, Text
from cuebook.kernel.effects import Effect
from cuebook.kernel.ports import Action, Description, Limits

SHOWN = 2_000
"""How many characters of each part a preview shows; a longer part is shortened in the middle."""
PARTS = 20
WHOLE = 500_000
"""How many characters of each part are stored with the approval, so that the user can read it in full before approving."""

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_ODD = re.compile(r"[^ -~\n\t]")
"""Characters that may be invisible or look like something else."""

# Characters of other categories that are invisible or look like a space.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


def shown(text: str, limit: int = SHOWN) -> str:
    """The text in displayable form: every character that would be invisible or misleading is spelled out."""
    text = text.replace("\r\n", "\n")
    if len(text) > limit:
        ending = limit // 4
        left_out = len(text) - limit
        return f"{_plain(text[: limit - ending])}\n[... {left_out:,} more characters ...]\n{_plain(text[-ending:])}"
    return _plain(text)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line. A line break is shown as an escape, because it is part of what a command receives."""
    lines = (" ".join(line.split()) for line in text.strip().split("\n"))
    return shown(r"\n".join(lines), limit).replace("\n", " ")


def _plain(text: str) -> str:
    return _ODD.sub(lambda found: _spelled(found[0]), text)


def _spelled(letter: str) -> str:
    unseen = unicodedata.category(letter) in _UNSEEN or letter in _BLANK or letter.isspace()
    if unseen or any(ord(letter) in some for some in _SELECTORS):
        return f"<U+{ord(letter):04X}>"
    return letter


def preview(named: Mapping[str, str]) -> dict[str, str]:
    """A preview with a limited number and size of parts; omitted parts are counted. Secrets must already be masked."""
    parts = list(named.items())
    made = {one_line(name, 60): shown(text) for name, text in parts[:PARTS]}
    if len(parts) > PARTS:
        made["left out"] = f"{len(parts) - PARTS} more parts"
    return made


def whole(named: Mapping[str, str]) -> dict[str, str]:
    """All parts in full, if the preview omits something; otherwise an empty mapping."""
    if len(named) <= PARTS and all(len(text) <= SHOWN for text in named.values()):
        return {}
    return {one_line(name, 60): shown(text, WHOLE) for name, text in named.items()}


def digest(effect: Effect, description: Description, limits: Limits) -> str:
    """The digest of everything that an approval covers. Secrets are included by handle, never by value."""
    return _hash(
        {
            "effect": msgspec.to_builtins(effect, enc_hook=_stable),
            "actions": [_action(action) for action in description.actions],
            "preview": description.preview,
            "bound": description.bound,
            "limits": msgspec.to_builtins(limits),
        }
    )


def effect_digest(effect: Effect) -> str:
    """The digest of what an effect does, without what its playbook says about asking and repeating."""
    fields = msgspec.to_builtins(effect, enc_hook=_stable)
    return _hash({name: value for name, value in fields.items() if name not in _ABOUT})


_ABOUT = frozenset({"approval", "rule", "preview", "attempt_at", "key_at", "idempotent", "witnessed", "doubt"})


def _stable(value: Any) -> str:
    """The same for the same value in every process: an approval is compared with what a later process describes."""
    if isinstance(value, Context):
        return value.digest
    if isinstance(value, Text):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no digest")


def trust_digest(subject: str, seen: str) -> str:
    return _hash({"subject": subject, "seen": seen})


def _hash(value: dict[str, Any]) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _action(action: Action) -> Sequence[Any]:
    return [action.domain, action.target, action.reads_only, *([True] if action.listed else ())]
