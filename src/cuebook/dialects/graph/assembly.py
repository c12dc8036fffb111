"""A node's instruction as a model gets it: rules, background, what its skills say, then the node's own words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

RULES = "## Rules — You MUST Follow These"
BACKGROUND = "## Background Context"
LEGACY = "## Additional Context & Rules"
BETWEEN = "\n\n---\n\n"


def assemble(
    base: str,
    rules: Sequence[str],
    background: Sequence[str],
    skills: Iterable[tuple[str, str]],
    inputs: Mapping[str, Any],
) -> str:
    """`skills` are names and instructions, in the order of the node's list. The base is not altered."""
    sections = [
        f"{heading}\n\n{text}"
        for heading, texts in ((RULES, rules), (BACKGROUND, background))
        if (text := "\n\n".join(one for one in texts if one))
    ]
    legacy = inputs.get("additionalContext")
    if not sections and isinstance(legacy, str) and legacy:
        sections.append(f"{LEGACY}\n\n{legacy}")
    sections += [f"## Skill: {name}\n\n{instruction}" for name, instruction in skills]
    return BETWEEN.join((*sections, base)) if sections else base
