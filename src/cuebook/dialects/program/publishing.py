"""The block `public.json` of a compiled agent: which of its playbooks others may call."""

from __future__ import annotations

import msgspec

from cuebook.dialects.program.model import Playbook
from cuebook.dialects.program.outline import Fence
from cuebook.dialects.registry import Problem
from cuebook.dialects.values import Malformed, Value
from cuebook.dialects.wording import meant
from cuebook.dialects.yaml12 import read_json

_CODE = "PUBLIC_JSON"


def published(
    fence: Fence, playbooks: dict[str, Playbook], problems: list[Problem], warnings: list[Problem]
) -> dict[str, Playbook]:
    """The playbooks with what the block says of them."""
    if not fence.text.strip():
        return playbooks
    try:
        root = read_json(fence.text)
    except Malformed as error:
        line = fence.number + error.line
        problems.append(Problem(f"public.json: {error.message}.", line, error.fix, _CODE))
        return playbooks
    found = dict(playbooks)
    if root.kind != "seq" or any(one.kind != "map" for one in root.items):
        problems.append(Problem("public.json must be a list of playbooks.", fence.number, "Write [].", _CODE))
        return playbooks
    for one in root.items:
        name, line = _text(one, "name"), fence.number + one.line
        playbook = found.get(name)
        if playbook is None:
            message = f"public.json names '{name}', which is no playbook of this agent."
            warnings.append(Problem(message, line, meant(name, playbooks), _CODE))
            continue
        metadata = {"public": True, **playbook.metadata}
        if "cli_entry" in one.fields:
            metadata.setdefault("cli_entry", one.fields["cli_entry"].plain)
        description = playbook.description or _text(one, "description")
        found[name] = msgspec.structs.replace(playbook, metadata=metadata, description=description)
    return found


def _text(value: Value, name: str) -> str:
    found = value.fields.get(name)
    return found.text if found is not None and found.kind == "str" else ""
