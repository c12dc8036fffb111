"""Scripted results of commands, requests and approvals in a test, by step.

A step without a scripted result fails; a step that the case lists as `real` is performed for real, if the user allows it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from cuebook.formats.values import Value
from cuebook.gate.sandbox import choose
from cuebook.kernel.context import Text
from cuebook.kernel.effects import Acting, AskApproval, Browse, CallNode, Effect, RunCommand, SecretNeed, SendHttp
from cuebook.kernel.engine.approval import UNGUARDED
from cuebook.kernel.outcomes import CommandResult, Failed, HttpResponse, Page
from cuebook.kernel.ports import Admitted, Call, Case, Needed, Trust
from cuebook.kernel.run import RunRow
from cuebook.kernel.votes import RULE
from cuebook.performers.commands import CommandPerformer
from cuebook.performers.http.performer import HttpPerformer
from cuebook.testing.reader import CaseReader

_COMMAND = ["stdout", "json", "stderr", "exit_code", "error", "code"]
_RESPONSE = ["status", "body", "json", "headers", "error", "code"]


class CommandSaid(msgspec.Struct, frozen=True):
    """A scripted result of a command."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    error: str | None = None
    code: str = "timeout"
    """The error code."""

    @property
    def outcome(self) -> CommandResult | Failed:
        if self.error is not None:
            return Failed(self.code, self.error)
        return CommandResult(self.exit_code, Text(self.stdout), Text(self.stderr), sandbox="none")


class ResponseSaid(msgspec.Struct, frozen=True):
    """A scripted response to a request."""

    status: int = 200
    body: str = ""
    headers: dict[str, str] = {}
    error: str | None = None
    code: str = "timeout"

    @property
    def outcome(self) -> HttpResponse | Failed:
        if self.error is not None:
            return Failed(self.code, self.error)
        return HttpResponse(self.status, self.headers, Text(self.body))


class Done(msgspec.Struct, frozen=True):
    """A command or request from a run, as text."""

    step: str
    words: str


# --- reading ------------------------------------------------------------------------------------------------


def commands_said(reader: CaseReader, node: Value) -> tuple[CommandSaid, ...]:
    return tuple(_command(reader, one) for one in reader.several(node))


def _command(reader: CaseReader, node: Value) -> CommandSaid:
    if node.kind != "map":
        return CommandSaid(reader.text(node, "a command result"))
    fields = reader.table(node, _COMMAND, "a command result")
    made = {name: reader.text(fields[name], name) for name in ("stderr", "error", "code") if name in fields}
    exit_code = _number(reader, fields["exit_code"], "exit_code") if "exit_code" in fields else 0
    return CommandSaid(_text(reader, fields, "stdout"), exit_code=exit_code, **made)


def responses_said(reader: CaseReader, node: Value) -> tuple[ResponseSaid, ...]:
    return tuple(_response(reader, one) for one in reader.several(node))


def _response(reader: CaseReader, node: Value) -> ResponseSaid:
    if node.kind == "int":
        return ResponseSaid(_number(reader, node, "status"))
    if node.kind != "map":
        return ResponseSaid(body=reader.text(node, "a response"))
    fields = reader.table(node, _RESPONSE, "a response")
    made: dict[str, Any] = {name: reader.text(fields[name], name) for name in ("error", "code") if name in fields}
    if "headers" in fields:
        headers = reader.fields(fields["headers"], "headers")
        made["headers"] = {name: reader.text(one, "a header") for name, one in headers.items()}
    status = _number(reader, fields["status"], "status") if "status" in fields else 200
    return ResponseSaid(status, _text(reader, fields, "body"), **made)


def _text(reader: CaseReader, fields: Mapping[str, Value], name: str) -> str:
    if "json" in fields:
        if name in fields:
            reader.wrong(fields["json"].line, f"'{name}' and 'json' are mutually exclusive.", "Remove one.")
        return json.dumps(fields["json"].plain, ensure_ascii=False)
    return reader.text(fields[name], name) if name in fields else ""


def _number(reader: CaseReader, node: Value, what: str) -> int:
    if node.kind != "int":
        reader.wrong(node.line, f"'{what}' must be a whole number.")
        return 0
    return int(node.plain)


def decisions_said(reader: CaseReader, node: Value) -> tuple[str, ...]:
    """Decisions: `approve`, `deny` or `changes`, optionally with a reason."""
    said = reader.texts(node, "a decision")
    for one in said:
        if one.split(None, 1)[:1] not in (["approve"], ["deny"], ["changes"]):
            fix = "Write approve, deny or changes, optionally with a reason."
            reader.wrong(node.line, f"'{one}' is not a decision.", fix)
    return said


# --- performing ---------------------------------------------------------------------------------------------


class Scripts:
    """Returns a step's scripted results in turn; the last result is repeated."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[CommandSaid]],
        requests: Mapping[str, Sequence[ResponseSaid]],
        real: Sequence[str],
        folder: Path,
        allow_real: bool,
        group: Callable[[str], str] = str,
    ) -> None:
        """`group` returns the name under which the results of an item's step may be listed, too."""
        self._group = group
        self._said = {RunCommand: commands, SendHttp: requests}
        self._given: dict[tuple[type[Effect], str], int] = {}
        self._real = frozenset(real)
        self._allow_real = allow_real
        # Nothing is started and no connection made unless a step is performed for real.
        self._commands = CommandPerformer(choose("auto"), folder)
        self._requests = HttpPerformer(private=lambda host, port: True)
        self.ran: list[Done] = []
        self.sent: list[Done] = []

    async def run(self, step: str, effect: RunCommand, call: Call) -> CommandResult | Failed:
        self.ran.append(Done(step, command_words(effect)))
        if self._is_real(step):
            return await self._commands.perform(effect, call) if self._allow_real else not_allowed(step)
        said = self._next(RunCommand, step)
        return unsaid(step, "commands") if said is None else said.outcome

    async def send(self, step: str, effect: SendHttp, call: Call) -> HttpResponse | Failed:
        self.sent.append(Done(step, request_words(effect)))
        if self._is_real(step):
            return await self._requests.perform(effect, call) if self._allow_real else not_allowed(step)
        said = self._next(SendHttp, step)
        return unsaid(step, "requests") if said is None else said.outcome

    async def browse(self, step: str, effect: Browse, call: Call) -> Page | Failed:
        """A page is scripted like a response: its body is the text of the page and of every element."""
        self.sent.append(Done(step, request_words(effect)))
        if self._is_real(step):
            return not_allowed(step)
        said: ResponseSaid | None = self._next(SendHttp, step)
        if said is None:
            return unsaid(step, "requests")
        if said.error is not None:
            return Failed(said.code, said.error)
        url = str(effect.arguments.get("url") or effect.page)
        opened = effect.action == "navigate"
        elements: dict[str, str | None] = dict.fromkeys(effect.looks, said.body)
        return Page(url, text=Text(said.body), status=said.status if opened else None, elements=elements, opened=opened)

    async def on_node(self, step: str, effect: CallNode, call: Call) -> CommandResult | Failed:
        """An action of a node is scripted like a command."""
        self.ran.append(Done(step, command_words(effect)))
        if self._is_real(step):
            return not_allowed(step)
        said = self._next(RunCommand, step)
        return unsaid(step, "commands") if said is None else said.outcome

    def _is_real(self, step: str) -> bool:
        return step in self._real or self._group(step) in self._real

    def _next(self, kind: type[Effect], step: str) -> Any:
        several = self._said[kind].get(step) or self._said[kind].get(self._group(step), ())
        if not several:
            return None
        turn = self._given.get((kind, step), 0)
        self._given[kind, step] = turn + 1
        return several[min(turn, len(several) - 1)]


def command_words(effect: RunCommand | CallNode) -> str:
    """A command as it would be typed, followed by its stdin."""
    if isinstance(effect, CallNode):
        arguments = json.dumps(effect.arguments, ensure_ascii=False) if effect.arguments else ""
        where = f" on {effect.node}" if effect.node else ""
        return f"node {effect.capability} {effect.action}{where} {arguments}".rstrip()
    stdin = f"\n{effect.stdin}" if effect.stdin else ""
    return f"{shlex.join(effect.argv)}{stdin}"


def request_words(effect: SendHttp | Browse) -> str:
    """Method and URL, then headers and body."""
    if isinstance(effect, Browse):
        return f"web {effect.action} {' '.join(str(one) for one in effect.arguments.values())}".rstrip()
    headers = "".join(f"\n{name}: {value}" for name, value in effect.headers.items())
    body = f"\n\n{effect.body}" if effect.body else ""
    return f"{effect.method} {effect.url}{headers}{body}"


def unsaid(step: str, where: str) -> Failed:
    fix = f"Add '{step}: ...' under '{where}', or list it under 'real'."
    return Failed("not_in_test", f"The test has no result for step {step}, so nothing was done.", fix)


def not_allowed(step: str) -> Failed:
    fix = "Allow it with `cuebook test --real`, after reading what it does."
    return Failed("not_in_test", f"The test performs step {step} for real, which was not allowed.", fix)


class AskingGate:
    """A gate that asks only for approvals that the playbook requires: tests have no policy."""

    async def examine(self, effect: Effect, case: Case) -> Admitted | Needed | Failed:
        if not isinstance(effect, Acting) or not effect.approval:
            return UNGUARDED
        shown = msgspec.json.encode(effect, enc_hook=str)
        digest = sha256(shown).hexdigest()
        if digest in case.granted:
            return msgspec.structs.replace(UNGUARDED, ruling={"decision": "ask", "rules": [], "approved": digest})
        purpose = effect.purpose if isinstance(effect, AskApproval) else "step"
        rule = {} if effect.rule is None else {RULE: effect.rule.plain()}
        return Needed(effect.approval, digest, {"preview": effect.preview, "purpose": purpose, **rule})

    async def learn(
        self, declared: Iterable[SecretNeed], used: Iterable[SecretNeed], run: RunRow, policy: str | None
    ) -> None:
        return None  # no test reads a secret

    def check_place(self, run: RunRow) -> None:
        return None

    async def trusted(self, trust: Trust, run: RunRow, by: str) -> None:
        return None

    def shown(self, words: str, parts: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
        return words, dict(parts), {}
