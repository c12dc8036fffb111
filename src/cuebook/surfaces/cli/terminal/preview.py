"""The plan and the dry run of a preview, as text and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from cuebook.dialects.presentation.preview import Act, Alternative, Choice, Preview
from cuebook.kernel.effects import (
    Acting,
    AskApproval,
    AskHuman,
    AskModel,
    Browse,
    CallNode,
    CallTool,
    ReadSource,
    RunCommand,
    SendHttp,
)
from cuebook.service.preview.explanation import Explanation
from cuebook.service.preview.rulings import ActRuling
from cuebook.surfaces.explanation import action_words, head_lines, one_line, ruling_object, secrets_of, verdict_object

# --- the plan -------------------------------------------------------------------------------------------

_WORDS = {"allow": "allowed", "ask": "subject to approval", "deny": "denied", "unknown": "not known yet"}


def plan_object(explained: Explanation) -> dict[str, Any]:
    preview = explained.preview
    return {
        "title": preview.title,
        "inputs": dict(preview.inputs),
        **preview.details,
        "steps": [{**one.act.details, **ruling_object(one)} for one in explained.rulings],
        **verdict_object(explained),
        "hosts": _hosts(explained),
        "notes": list(explained.notes),
    }


def _hosts(explained: Explanation) -> list[str]:
    return list(dict.fromkeys(host for one in explained.rulings for host in one.hosts))


def plan_lines(explained: Explanation) -> Iterator[str]:
    yield from head_lines(explained.preview)
    for one in explained.rulings:
        yield ""
        yield from _ruling_lines(one)
    yield ""
    reached = explained.reached
    for name, words in (
        ("secrets", secrets_of(explained)),
        ("hosts", _hosts(explained)),
        ("asked", [f"{one.act.label}{_of_tools(one)}" for one in reached if one.decision == "ask" or _of_tools(one)]),
        ("denied", [one.act.label for one in reached if one.decision == "deny"]),
        ("fails", [one.act.label for one in reached if one.fails]),
    ):
        yield f"{name + ':':<12}{', '.join(words) or 'none'}"
    if explained.refused:
        yield f"\nThe run would not start:\n{explained.refused}"
    yield from (f"{'note:':<12}{one_line(words)}" for words in explained.notes)


def _of_tools(one: ActRuling) -> str:
    """The suffix for an allowed step whose model may call tools that need approval."""
    return " (tool calls)" if one.decision != "ask" and any(tool.decision == "ask" for tool in one.tools) else ""


def _ruling_lines(one: ActRuling) -> Iterator[str]:
    act = one.act
    skipped = ", which is false, so the step is skipped" if act.runs is False else ""
    yield f"{act.label}{f'  {act.title}' if act.title else ''}"
    lines = [
        ("does", action_words(act.effect)),
        ("if", f"{act.condition}{skipped}" if act.condition else ""),
        ("would be" if skipped else "is", f"{_WORDS[one.decision]}{_because(one)}"),
        ("secrets", ", ".join(f"{use.at} from {use.handle}" for use in one.secrets)),
        ("not known", ", ".join((*act.open.names, *(f"{name} (secret)" for name in act.open.secrets)))),
        ("tools", ", ".join(f"{tool.tool} ({_WORDS.get(tool.decision, tool.decision)})" for tool in one.tools)),
        ("tries", f"up to {act.attempts} times" if act.attempts > 1 else ""),
        ("if it fails", act.on_failure),
        ("lacks", f"{', '.join(act.lacks)} (it may change something)" if act.lacks else ""),
    ]
    lines += [("note", one_line(words)) for words in one.notes]
    yield from (f"  {name + ':':<13}{words}" for name, words in lines if words)


def _because(one: ActRuling) -> str:
    if not one.rules:
        return ""
    rules = "; ".join(one.rules)
    return f": it may depend on {rules}" if one.decision == "unknown" else f": {rules}"


# --- the dry run ----------------------------------------------------------------------------------------


def dry_run_objects(preview: Preview) -> list[dict[str, Any]]:
    """The steps in order, each with all its branches."""
    return [_choice_object(part) if isinstance(part, Choice) else _act_object(part) for part in _flat(preview)]


def _flat(preview: Preview) -> list[Act | Choice]:
    flat: list[Act | Choice] = []
    for part in preview.acts:
        flat += [*part.before, part] if isinstance(part, Choice) else [part]
    return flat


def _act_object(act: Act) -> dict[str, Any]:
    system = {"system": _system(act.effect)} if isinstance(act.effect, AskModel) else {}
    return {**act.details, **system}


def _system(effect: AskModel) -> str:
    return "\n\n".join(str(block.text) for block in effect.context if block.role == "system")


def _choice_object(choice: Choice) -> dict[str, Any]:
    return {
        "step": choice.label,
        "title": choice.title,
        "depends_on": list(choice.on),
        "ways": [
            {"when": one.when, "values": dict(one.values), "shown": [_act_object(act) for act in one.acts]}
            for one in choice.alternatives
        ],
        "followed": choice.followed,
    }


def dry_run_passages(preview: Preview) -> Iterator[str]:
    """Yields the passages one by one, because together they may be far longer than the playbook."""
    parts = _flat(preview)
    for part in parts:
        yield from (
            _choice_passages(part, part is parts[-1]) if isinstance(part, Choice) else ["\n".join(_act_lines(part))]
        )


def _choice_passages(choice: Choice, last: bool) -> Iterator[str]:
    yield f"=== Step {choice.label}: {choice.title}\nwhat follows depends on {choice.reason}"
    for one in choice.alternatives:
        yield f">>> {_when(one)}{'' if one.acts else ': nothing'}"
        yield from ("\n".join(_act_lines(act)) for act in one.acts)
    if not last:
        followed = choice.followed
        shown = "for the last of these branches" if followed == "otherwise" else f"as if {followed}"
        yield f"<<< what follows is shown {shown}"


def _when(one: Alternative) -> str:
    return one.when if one.when == "otherwise" else f"if {one.when}"


def _act_lines(act: Act) -> Iterator[str]:
    kind, words = act.report or ("", "")
    if kind == "warning":
        yield f"warning: {words}"
        return
    yield f"=== Step {act.label}{f': {act.title}' if act.title else ''}"
    if kind:
        yield f"{kind}: {words}"
    yield from (f"warning: {words}" for words in act.warnings)
    if act.condition:
        known = {True: ", which is true", False: ", which is false, so the step is skipped", None: ""}
        yield f"--- if {act.condition}{known[act.runs]}"
    if act.approval:
        yield f"--- approval\n{act.approval}"
    if act.problem:
        yield f"failed: {act.problem}"
    yield from _effect_lines(act)
    if isinstance(act.effect, Acting):
        for use in act.effect.secrets:
            yield f"--- secret for {use.at}\n{use.form.replace('{}', f'<{use.handle}>')}"
    if act.then:
        yield "--- then"
        yield from act.then


def _effect_lines(act: Act) -> Iterator[str]:
    match act.effect:
        case RunCommand(argv=argv, cwd=cwd, env=env, stdin=stdin, network=hosts, reads=reads) as run:
            yield f"--- command{f' in {cwd}' if cwd else ''}\n{shlex.join(argv)}"
            yield from [f"--- network\nonly {', '.join(hosts)}"] if hosts else []
            yield from ["--- may also read", *reads] if reads else []
            yield from (
                ["--- files put there", *(f"{path}: {one}" for path, one in run.takes.items())] if run.takes else []
            )
            yield from ["--- files kept", *(f"{name}: {path}" for name, path in run.files.items())] if run.files else []
            yield from ["--- environment", *(f"{name}={value}" for name, value in env.items())] if env else []
            yield from [f"--- stdin\n{stdin}"] if stdin else []
        case SendHttp(method=method, url=url, headers=headers, body=body) as request:
            yield f"--- request\n{method} {url}"
            yield from (f"{name}: {value}" for name, value in headers.items())
            yield from [f"--- body\n{body}"] if body else []
            yield from [f"--- body\nthe file {request.upload}"] if request.upload is not None else []
            yield from (
                ["--- form", *(f"{one.name}: {one.file or one.text}" for one in request.form)] if request.form else []
            )
            yield from [f"--- download\nto the file {request.download}"] if request.download else []
        case Browse(action=action, arguments=arguments, network=hosts):
            yield f"--- browser\n{action} {json.dumps(arguments, ensure_ascii=False)}"
            yield from [f"--- network\nonly {', '.join(hosts)}, and the page's own host"] if hosts else []
        case CallNode(node=node, capability=capability, action=action, arguments=arguments):
            yield f"--- node {node or 'that offers ' + capability}\n{capability} {action}"
            yield json.dumps(arguments, ensure_ascii=False, indent=2)
        case CallTool(tool=tool, arguments=arguments):
            yield f"--- tool {tool}\n{json.dumps(arguments, ensure_ascii=False, indent=2)}"
        case AskModel(model=model, prompt=prompt, tools=tools) as asked:
            yield from [f"--- system\n{_system(asked)}"] if _system(asked) else []
            yield f"--- prompt{f' ({model})' if model else ''}\n{prompt}"
            yield from [f"--- tools\n{', '.join(spec.name for spec in tools)}"] if tools else []
        case AskHuman() as asked:
            yield from _question_lines(act, asked)
        case ReadSource(source=source):
            yield f"--- text {source}{' (not read here)' if act.text is None else ''}"
        case None:
            pass
        case AskApproval():
            pass  # it is the approval
        case effect:
            yield f"effect: {effect.fingerprint}"


def _question_lines(act: Act, asked: AskHuman) -> Iterator[str]:
    yield f"--- question ({asked.type})\n{asked.question}"
    if asked.options:
        yield f"options: {', '.join(asked.options)}"
    if asked.default is not None:
        yield f"default: {asked.default}"
    yield f"assumed answer: {act.answer}" if act.is_assumed else f"answered: {act.answer}"
