"""`cuebook new --from`: a model drafts a playbook from a description. The draft is checked before it is saved; its errors
are sent back to the model, at most twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

from cuebook.dialects.findings import Finding
from cuebook.gate.policy import decide_all
from cuebook.kernel.context import EMPTY, Context
from cuebook.kernel.effects import AskModel
from cuebook.kernel.errors import BadInput, CuebookError, with_fix
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Action, Call
from cuebook.kernel.run import Settings
from cuebook.surfaces.cli.terminal.output import complain
from cuebook.surfaces.display import counted
from cuebook.wiring.preview import strictest_policy
from cuebook.wiring.wiring import Wiring

REPAIRS = 2

_FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.DOTALL | re.MULTILINE)

Check = Callable[[str], Sequence[Finding]]


def draft(description: str, system: str, check: Check, wiring: Wiring) -> str:
    """Returns a valid playbook. Raises `CuebookError` with the remaining errors if the model does not produce one."""
    if not description.strip():
        raise BadInput("--from: the description is empty.", fix="Describe what the playbook should do.")
    wiring.providers.check(wiring.model)
    _permitted(wiring)
    return asyncio.run(_drafted(description, system, check, wiring))


async def _drafted(description: str, system: str, check: Check, wiring: Wiring) -> str:
    context = EMPTY.add("system", system)
    prompt = f"Write one that does this:\n\n{description.strip()}"
    listed = ""
    for repair in range(REPAIRS + 1):
        reply = await _asked(prompt, context, wiring)
        text = _document(reply)
        wrong = [finding for finding in check(text) if finding.severity == "error"]
        if not wrong:
            return text
        listed = "\n".join(f"line {one.line or 1}: {with_fix(one.message, one.fix)} [{one.code}]" for one in wrong[:20])
        if repair < REPAIRS:
            complain(
                f"The draft has {counted(len(wrong), 'error')}; asking {wiring.model} to fix {'it' if len(wrong) == 1 else 'them'}."
            )
        context = context.add("user", prompt).add("assistant", reply)
        prompt = f"This cannot be run:\n\n{listed}\n\nAnswer with the whole corrected document alone."
    raise CuebookError(
        f"{wiring.model} did not write a valid playbook in {REPAIRS + 1} attempts; nothing was saved. Remaining errors:"
        f"\n{listed}",
        fix="Describe it more simply, or use a larger model.",
    )


async def _asked(prompt: str, context: Context, wiring: Wiring) -> str:
    settings = Settings(model=wiring.model, max_tokens=wiring.max_tokens)

    def nothing(*said: Any) -> None:
        return None

    call = Call("", "", 1, settings, lambda text: True, nothing, nothing)
    outcome = await wiring.performer().perform(AskModel(prompt, context), call)
    if isinstance(outcome, Failed):
        raise CuebookError(outcome.message, fix=outcome.fix)
    return outcome.text


def _document(reply: str) -> str:
    """The text of the first code fence, or the whole reply."""
    found = _FENCED.search(reply)
    return (found[2] if found else reply).strip("\n") + "\n"


def _permitted(wiring: Wiring) -> None:
    ruling = decide_all((Action("model", wiring.model, True),), [strictest_policy(wiring)])
    if ruling.decision != "allow":
        raise BadInput(
            f"The policy does not allow {wiring.model} without approval.",
            fix="Choose another model with --model, or allow this one: `cuebook policy allow model NAME`.",
        )
