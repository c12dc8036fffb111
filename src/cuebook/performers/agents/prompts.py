"""The texts that an agent is prompted with: the task at the beginning, and how to go on after an interruption."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cuebook.kernel.effects import AskModel

_CONTRACT = (
    "When you are done, end with one message that is JSON only: one JSON value, no words before or after it. It must"
    " follow this JSON Schema: "
)
_GO_ON = (
    "Your process was interrupted while you were working, and your session was loaded again. Something that you began may"
    " have happened or not: look first, then finish the task."
)


class Result(msgspec.Struct, frozen=True):
    """The result of something that an agent waited for."""

    id: str
    name: str
    text: str
    is_error: bool
    title: str = ""
    digest: str = ""

    @property
    def answer(self) -> tuple[str, bool]:
        return self.text, self.is_error

    @property
    def granted(self) -> bool:
        return self.name == "agent_permission" and not self.is_error and bool(self.digest)


def results_since(effect: AskModel) -> tuple[Result, ...]:
    """The results at the end of the context, which an agent's last reply waits for."""
    if effect.prompt:
        return ()
    blocks = list(effect.context)
    results: dict[str, tuple[str, bool]] = {}
    while blocks and blocks[-1].role == "tool":
        block = blocks.pop()
        results[block.call_id] = (str(block.text), block.is_error)
    if not blocks or not blocks[-1].calls:
        return ()
    made = []
    for call in blocks[-1].calls:
        if call.id in results:
            text, is_error = results[call.id]
            given = call.arguments
            title = str(given.get("title") or given.get("path") or given.get("command") or call.name)
            made.append(Result(call.id, call.name, text, is_error, title, str(given.get("digest", ""))))
    return tuple(made)


def first_prompt(effect: AskModel) -> str:
    """The whole task, with everything that came before it."""
    parts = []
    for block in effect.context:
        label = {"system": "", "user": "", "assistant": "Earlier reply:\n", "tool": "Earlier result:\n"}[block.role]
        parts.append(f"{label}{block.text}")
    if effect.prompt:
        parts.append(effect.prompt)
    if effect.schema is not None:
        parts.append(_CONTRACT + msgspec.json.encode(effect.schema).decode())
    return "\n\n".join(part for part in parts if part.strip())


def continued(effect: AskModel, results: Sequence[Result]) -> str:
    """The prompt for a session that continues in another process."""
    if effect.prompt and effect.session:
        return effect.prompt
    if not results:
        return f"{_GO_ON}\n\nThe task:\n\n{first_prompt(effect)}"
    lines = ["Your process was ended while you waited; your session was loaded again. This is what you waited for:"]
    for one in results:
        if one.name == "agent_permission":
            lines.append(
                f"- Permission for '{one.title}' was {'denied: ' + one.text if one.is_error else 'given, once: do it now'}."
            )
        else:
            lines.append(f"- {one.title}: {'error: ' if one.is_error else ''}{one.text}")
    lines.append("Go on with the task.")
    return "\n".join(lines)
