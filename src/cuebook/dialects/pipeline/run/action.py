"""Builds the effect of a step, with references resolved and secrets as handles. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from cuebook.dialects.pipeline.inputs import variable_of
from cuebook.dialects.pipeline.model import (
    ArgRef,
    Cli,
    DomContains,
    FormField,
    Function,
    Http,
    Mcp,
    NodeCall,
    Ref,
    Secret,
    Step,
    Web,
    Words,
)
from cuebook.dialects.pipeline.parse.references import as_written
from cuebook.dialects.pipeline.parse.urls import BadPlace, address
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.dialects.pipeline.run.results import Result, encoded, written
from cuebook.kernel.browser_trail import Trail
from cuebook.kernel.effects import OUTPUT_OF, Browse, CallNode, CallTool, FormPart, RunCommand, SecretUse, SendHttp
from cuebook.kernel.outcomes import EffectFailed, Failed
from cuebook.kernel.votes import Rule

_LONGEST = 100_000
_ROOM = 500_000
"""Maximum bytes of one variable, and of all variables together: systems refuse to start a program with much more."""

SHOWN = 1_900
"""How many characters of an earlier output an approver sees. With the note about the cut it stays below the gate's own limit,
so it is not cut again and the note stays correct."""

Acted = RunCommand | SendHttp | Browse | CallTool | CallNode


class Given(msgspec.Struct, frozen=True):
    """The caller's options for every step."""

    cwd: str = ""
    max_output: int | None = None

    def most_of(self, step: Step) -> int | None:
        """How many bytes of a step's output are kept: the lower of the two limits, or None without a limit."""
        limits = (self.max_output, step.output.max_bytes if step.output is not None else None)
        return min((limit for limit in limits if limit), default=None)


def acting(
    step: Step, scope: Scope, given: Given, shown: Mapping[str, str], approval: str, rule: Rule | None = None
) -> Acted:
    """The effect of a step. `shown` is the preview for the approver and `approval` the question. If `approval` is
    empty, the policy decides."""
    common: dict[str, Any] = {
        "reads_only": step.reads_only,
        "approval": approval,
        "rule": rule,
        "preview": dict(shown),
        "attempt_at": "action",
        "witnessed": True,
        "timeout": step.timeout,
        "max_output": given.most_of(step),
    }
    match step.action:
        case Cli():
            return _command(step, step.action, scope, given, common)
        case Http():
            return _request(step, step.action, scope, common)
        case Web():
            return _browse(step, step.action, scope, common)
        case Mcp():
            return _call(step.action, scope, common)
        case NodeCall():
            return _node(step, step.action, scope, common)
        case _:
            raise TypeError(f"the namespace {step.namespace} has no single effect")


# --- commands ---


def _command(step: Step, action: Cli, scope: Scope, given: Given, common: dict[str, Any]) -> RunCommand:
    env = variables(scope)
    uses: list[SecretUse] = []
    for name, value in step.env.items():
        if isinstance(value, Secret):
            env.pop(name, None)
            if scope.has(value):
                uses.append(_use(f"env.{name}", value, scope))
        else:
            env[name] = scope.text(value)
    passwords = ((host, one.password) for host, one in step.credentials.items())
    uses += [_use(f"credentials.{host}", password, scope) for host, password in passwords if scope.has(password)]
    stdin = ""
    if isinstance(step.stdin, Secret):
        uses.append(_use("stdin", step.stdin, scope))
    elif step.stdin is not None:
        stdin = scope.handed(step.stdin)
    folder = "/".join(part for part in (given.cwd, step.cwd) if part)
    argv = tuple(scope.text(word) for word in action.argv)
    return RunCommand(
        argv,
        folder,
        env,
        stdin,
        network=step.network,
        credentials={host: scope.text(one.username) for host, one in step.credentials.items()},
        reads=step.reads,
        files={name: scope.text(path) for name, path in step.files.items()},
        takes={path: scope.file(file, step.line) for path, file in step.takes.items()},
        from_outside=step.from_outside,
        secrets=tuple(uses),
        **common,
    )


def variables(scope: Scope) -> dict[str, str]:
    """The run's arguments as environment variables of commands, without secrets and without values that do not fit."""
    made: dict[str, str] = {}
    room = _ROOM
    for name, value in _open(scope):
        size = _size(value)
        if size is not None and size <= min(room, _LONGEST):
            made[variable_of(name)] = value
            room -= size
    return made


def unhanded(scope: Scope) -> list[str]:
    """The arguments that do not fit into a variable, so commands do not receive them."""
    handed = variables(scope)
    return [name for name, _ in _open(scope) if variable_of(name) not in handed]


def _open(scope: Scope) -> Iterator[tuple[str, str]]:
    """The given arguments that are not secret."""
    for name, value in scope.args.items():
        if value is not None and not scope.is_secret(name):
            yield name, written(value)


def _size(text: str) -> int | None:
    """The size of the text in bytes; None if it contains a character that no variable can contain."""
    try:
        return None if "\0" in text else len(text.encode())
    except UnicodeEncodeError:
        return None


# --- requests ---


def _request(step: Step, action: Http, scope: Scope, common: dict[str, Any]) -> SendHttp:
    headers: dict[str, str] = {}
    uses: list[SecretUse] = []
    for name, value in action.headers.items():
        if isinstance(value, Secret):
            if scope.has(value):
                uses.append(_use(f"headers.{name}", value, scope))
        else:
            headers[name] = scope.text(value)
    body = ""
    source = action.body if action.body is not None else step.stdin
    if action.has_json:
        _refuse_secrets(action.json)
        body = encoded(scope.field(action.json))
        if "content-type" not in {name.lower() for name in action.headers}:
            headers["Content-Type"] = "application/json"
    elif isinstance(source, Secret):
        uses.append(_use("body", source, scope))
    elif source is not None:
        body = scope.handed(source)
    return SendHttp(
        action.method,
        _address(action, scope),
        headers,
        body,
        upload=None if action.upload is None else scope.file(action.upload, step.line),
        form=tuple(_form_part(one, scope, step.line) for one in action.form),
        download=action.download,
        secrets=tuple(uses),
        **common,
    )


def _form_part(field: FormField, scope: Scope, line: int) -> FormPart:
    text = "" if field.text is None else scope.handed(field.text)
    file = None if field.file is None else scope.file(field.file, line)
    return FormPart(field.name, text, file, field.filename, field.type)


def _address(action: Http, scope: Scope) -> str:
    """The URL, with the parameters of `with.query`."""
    url = _url(action.url, scope)
    if not action.query:
        return url
    base, hash_, fragment = url.partition("#")
    query = urlencode({name: scope.text(value) for name, value in action.query.items()})
    return f"{base}{'&' if '?' in base else '?'}{query}{hash_}{fragment}"


def _url(words: Words, scope: Scope) -> str:
    line = words.line
    try:
        return address(words.parts, lambda ref: scope.written(ref, line))
    except BadPlace as error:
        raise EffectFailed(Failed("bad_url", f"line {line}: the URL cannot be used: {error.why}.", error.fix)) from None


def _refuse_secrets(value: Any) -> None:
    for place, secret in _secrets(value, ()):
        raise EffectFailed(
            Failed(
                "secret_misplaced",
                f"line {secret.line}: a secret cannot be part of a JSON body, at {'.'.join(map(str, place))}.",
                "Pass the whole body as a secret, or put the secret into a header.",
            )
        )


# --- the browser ---


def _browse(step: Step, action: Web, scope: Scope, common: dict[str, Any]) -> Browse:
    arguments: dict[str, Any] = {}
    uses: list[SecretUse] = []
    for name, value in action.arguments.items():
        if isinstance(value, Secret):
            uses.append(_use(name, value, scope))
        elif name == "url":
            arguments[name] = _url(value, scope)
        else:
            arguments[name] = scope.text(value) if isinstance(value, Words) else _texts(value, scope)
    trail = Trail() if action.command == "navigate" else scope.trail
    return Browse(
        action.command,
        arguments,
        trail.page,
        trail.fills,
        trail.clicks,
        network=scope.domains,
        looks=_looks(step),
        secrets=(*uses, *trail.secrets),
        **common,
    )


def _texts(value: Any, scope: Scope) -> Any:
    return {name: scope.text(one) for name, one in value.items()} if isinstance(value, dict) else value


def _looks(step: Step) -> tuple[str, ...]:
    """The elements that the postcondition is about."""
    found = step.postcondition.assertions if step.postcondition is not None else ()
    return tuple(dict.fromkeys(one.selector or "body" for one in found if isinstance(one, DomContains)))


# --- tools ---


def _call(action: Mcp, scope: Scope, common: dict[str, Any]) -> CallTool:
    arguments, uses = _arguments(action.arguments, scope)
    return CallTool(action.tool, arguments, secrets=uses, **common)


def _node(step: Step, action: NodeCall, scope: Scope, common: dict[str, Any]) -> CallNode:
    arguments, uses = _arguments(action.arguments, scope)
    node = "" if step.node is None else scope.text(step.node).strip()
    return CallNode(
        action.capability, action.action, arguments, node, secrets=uses, idempotent=step.idempotent, **common
    )


def _arguments(given: Mapping[str, Any], scope: Scope) -> tuple[dict[str, Any], tuple[SecretUse, ...]]:
    """The arguments without secrets, and the secrets among them."""
    found = [(_argument(place, secret), secret) for place, secret in _secrets(given, ())]
    uses = [_use(at, secret, scope) for at, secret in found if scope.has(secret)]
    return scope.field(_without_secrets(given)), tuple(uses)


def _argument(place: tuple[str | int, ...], secret: Secret) -> str:
    if any(isinstance(part, int) or "." in part for part in place):
        raise EffectFailed(
            Failed(
                "secret_misplaced",
                f"line {secret.line}: a secret cannot be in a list or below a name that contains a dot.",
                "Pass it as a separate argument.",
            )
        )
    return ".".join(("arguments", *map(str, place)))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_secrets(one) for name, one in value.items() if not isinstance(one, Secret)}
    return [_without_secrets(one) for one in value] if isinstance(value, list | tuple) else value


def _secrets(value: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Secret]]:
    if isinstance(value, Secret):
        yield place, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _secrets(one, (*place, name))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _secrets(one, (*place, number))


def _use(at: str, secret: Secret, scope: Scope) -> SecretUse:
    return SecretUse(at, scope.handle(secret), secret.form)


# --- the approver's preview ---


def preview(step: Step, scope: Scope, referred: Sequence[str], last: str) -> dict[str, str]:
    """The outputs that the step refers to, or else the last output, and the rollback hint."""
    named = [name for name in referred if name in scope.results] or ([last] if last else [])
    outputs = {f"{OUTPUT_OF}{name}": shown_output(scope.results[name]) for name in named}
    made = {name: text for name, text in outputs.items() if text}
    hint = hint_of(step, scope)
    return {**made, "to undo it": hint} if hint else made


def hint_of(step: Step, scope: Scope) -> str:
    """The rollback hint with the run's arguments filled in; a reference without a value stays as written."""
    parts = (step.rollback_hint,) if step.undo is None else step.undo.parts
    return "".join(part if isinstance(part, str) else _argument_in(part, scope) for part in parts)


def _argument_in(ref: Ref | Function, scope: Scope) -> str:
    value = scope.args.get(ref.name) if isinstance(ref, ArgRef) else None
    return as_written(Words((ref,))) if value is None else written(value)


def shown_output(result: Result) -> str:
    """The output, with notes about missing parts."""
    text, facts = shortened(str(result.text)), result.facts
    if facts.truncated:
        text += f"\n[cut at the limit: {f'{facts.size:,} bytes' if facts.size else 'more'} in total]"
    return f"{text}\n[invalid UTF-8 bytes were replaced]" if facts.replaced else text


def shortened(text: str) -> str:
    """The beginning and the end of long text."""
    if len(text) <= SHOWN:
        return text
    end = SHOWN // 4
    return f"{text[: SHOWN - end]}\n[... {len(text) - SHOWN:,} more characters ...]\n{text[-end:]}"


def prompt(step: Step, attempt: int, label: str = "") -> str:
    """The question for the approver of a step; empty if the step does not require approval. The `label` also names the item
    of a loop."""
    if not step.approval:
        return ""
    again = f" (attempt {attempt})" if attempt > 1 else ""
    return f"Step {label or step.id}{f', {step.name},' if step.name else ''} asks for approval{again}."


def texts(words: Words | Secret | None, scope: Scope) -> str:
    """The text of a field; empty for a secret."""
    return "" if words is None or isinstance(words, Secret) else scope.handed(words)
