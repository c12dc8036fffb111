"""Readable forms of the notes that a dialect records about a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Note(msgspec.Struct, frozen=True):
    words: str
    """The note, on one line."""
    live: str = ""
    """The line shown to a user who follows the run; empty for a note that is only recorded."""
    lasting: bool = False
    """Whether the words are also shown with the finished step."""


def kernel_note(name: str, data: Mapping[str, Any]) -> Note:
    """A kernel note in readable form. Any other note is shown as its fields."""
    match name, data:
        case "model_attempt", {"number": number, "of": of, "reason": reason}:
            soon = f" in {data['wait']:.0f} s" if data.get("wait", 0) >= 1 else ""
            words = f"attempt {number} of {of}{soon}: {one_line(reason)}"
            return Note(words, words)
        case "model_fallback", {"model": model, "to": other, "kind": kind}:
            words = f"asking {other}, because {model} is unavailable"
            # The first time there is also a warning, with the reason.
            return Note(words, words, lasting=True) if kind == "down" else Note(words)
        case "model_waiting", {"provider": provider, **limits}:
            words = f"waits: {_limit_words(provider, limits)}"
            return Note(words, words)
        case "model_waited", {"provider": provider, "seconds": seconds}:
            return Note(f"waited {seconds:.1f} s because of a limit on calls to {provider}", lasting=True)
        case "compaction", {"before": before, "after": after, **rest}:
            how = "summarised" if rest.get("summary") else f"{rest.get('results', 0)} old results removed"
            words = f"made room: {how}, about {before:,} tokens became {after:,}"
            return Note(words, words)
        case "agent_call", {"title": title, "status": status, "kind": kind}:
            words = f"{one_line(title) or kind}: {status.replace('_', ' ')}"
            return Note(words, words)
        case "agent_plan", {"entries": entries}:
            words = "; ".join(f"{one_line(one['text'])} ({one['status'].replace('_', ' ')})" for one in entries)
            return Note(f"plan: {words}", f"plan: {words}")
        case "repair", {"number": number, "problems": problems}:
            words = f"{number}: {'; '.join(map(one_line, problems))}"
            return Note(words, f"{name}: {words}")
    fields = {name: value for name, value in data.items() if value not in ("", None, [], {})}
    return Note(", ".join(f"{name} {_plain(value)}" for name, value in fields.items()))


def _limit_words(provider: Any, limits: Mapping[str, Any]) -> str:
    match limits:
        case {"at_once": most}:
            return f"{most} of {most} calls to {provider} are under way"
        case {"requests_per_minute": most}:
            return f"{most} of {most} calls to {provider} this minute were made"
    return f"{provider} is at its limit"


def one_line(text: Any) -> str:
    return " ".join(str(text).split())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
