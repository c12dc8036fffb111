"""Whether a text is a program: by the name of its file, or, where it has none, by what its headings hold."""

from __future__ import annotations

import re
from os.path import splitext

SUFFIXES = (".pbasm", ".pb")

_AGENT = re.compile(r"^#[ \t]++\S", re.MULTILINE)
_PLAYBOOK = re.compile(r"^##[ \t]++\S", re.MULTILINE)
_STEP = re.compile(r"^[ \t]*+-[ \t]++\d{1,4}(?:\.\d{1,4})*+:(?:EXE|TNK|QUE|CND|CHK|RET|JMP|YLD)\b", re.MULTILINE)
_DECORATED = re.compile(r"^@playbook\b", re.MULTILINE)


def recognises(text: str, name: str) -> bool:
    suffix = splitext(name)[1].lower()
    if suffix:
        return suffix in SUFFIXES
    text = text.removeprefix("\ufeff").replace("\r", "\n")
    if not _AGENT.search(text):
        return False
    return bool((_PLAYBOOK.search(text) and _STEP.search(text)) or _DECORATED.search(text))
