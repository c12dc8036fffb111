"""What a step did and what came of it, in a few lines: for whoever looks on, and whoever looks later. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.kernel.effects import RunCommand, SendHttp
from cuebook.kernel.events import WaitOpened
from cuebook.kernel.outcomes import CommandResult, HttpResponse
from cuebook.surfaces import wording
from cuebook.views import route_words

_LINES = 3
"""Lines of an output that are shown while a run is looked on at."""
_WIDE = 100
"""Characters of such a line."""
_PREVIEWED = 8
"""Lines of each part of a preview that are shown there; `cuebook inbox WAIT` shows all of them."""


def action_line(effect: Any) -> str:
    """What is about to be done, where that is a command or a request; empty otherwise."""
    match effect:
        case RunCommand(argv=argv):
            return f"runs {_cut(shlex.join(argv))}"
        case SendHttp(method=method, url=url):
            return f"sends {method.upper()} {_cut(url)}"
        case _:
            return ""


def outcome_lines(outcome: Any) -> list[str]:
    """How a command or a request ended, and a few lines of what it gave: the last ones where it went wrong."""
    match outcome:
        case CommandResult(exit_code=code, signal=signal):
            ended = f"ended by {signal}" if signal else f"exit code {code}"
            wrong = bool(code)
            text = str(outcome.stderr) if wrong and len(outcome.stderr) else str(outcome.stdout)
            cut = outcome.truncated
        case HttpResponse(status=status, truncated=cut):
            ended, wrong, text = f"status {status}", status >= 400, str(outcome.body)
        case _:
            return []
    lines = _lines(text)
    count = f", {wording.counted(len(lines), 'line')}{' (cut at the limit)' if cut else ''}" if lines else ", no output"
    shown = lines[-_LINES:] if wrong else lines[:_LINES]
    left = len(lines) - len(shown)
    dots = ["| …"] if left else []
    quoted = [f"| {_cut(line)}" for line in shown]
    return [f"{ended}{count}", *(dots if wrong else []), *quoted, *([] if wrong else dots)]


def output_lines(output: str) -> list[str]:
    """A few lines of what a step gave, the first ones."""
    lines = _lines(output)
    return [*(f"| {_cut(line)}" for line in lines[:_LINES]), *(["| …"] if len(lines) > _LINES else [])]


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n") if text.strip() else []


def asked_lines(event: WaitOpened) -> list[str]:
    """What a person is asked, with what they are shown besides: shortened, save where it may have happened already."""
    preview = event.details.get("preview", {})
    if event.kind == "in_doubt":
        return [event.prompt, *wording.preview_lines(preview)]
    lines = [event.prompt]
    if again := wording.asked_again(event.details):
        lines.append(f"asked again: {again}")
    for name, text in preview.items() if event.kind == "approval" else ():
        parts = str(text).rstrip("\n").split("\n")
        lines.append(f"{name}:")
        lines += [f"| {_cut(line)}" for line in parts[:_PREVIEWED]]
        lines += ["| …"] if len(parts) > _PREVIEWED else []
    return lines


def note_words(name: str, data: Mapping[str, Any]) -> str:
    """What a dialect says of a step, in one line."""
    match name, data:
        case "route", _:
            return route_words(data)
        case "condition", {"text": text, "held": held}:
            return f"{text} ({'holds' if held else 'does not hold'})"
        case "attempt", {"number": number, "message": message}:
            wait = f"; the next one after {wording.duration(data['delay'])}" if data.get("delay") else ""
            return f"{number} failed ({data.get('code', '')}): {_one_line(message)}{wait}"
        case "model_attempt", {"number": number, "of": of, "reason": reason}:
            return f"attempt {number} of {of}: {_one_line(reason)}"
        case "contract", {"problems": problems}:
            return f"violated: {'; '.join(map(_one_line, problems))}"
        case "repair", {"number": number, "problems": problems}:
            return f"{number}: {'; '.join(map(_one_line, problems))}"
        case "postcondition", {"verdict": verdict, "assertions": assertions}:
            words = {"passed": "holds", "failed": "does not hold", "missing": "cannot be told"}
            said = "; ".join(_assertion(one) for one in assertions)
            return f"{words.get(verdict, verdict)}: {said}"
        case _:
            return ", ".join(
                f"{field} {_plain(value)}" for field, value in data.items() if value not in ("", None, [], {})
            )


def _assertion(one: Mapping[str, Any]) -> str:
    message = f" ({_one_line(one['message'])})" if one.get("message") else ""
    return f"{one.get('kind', '')} {one.get('status', '')}{message}".strip()


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())


def _cut(line: str) -> str:
    line = line.replace("\t", "    ").rstrip("\r")
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…"
