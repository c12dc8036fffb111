"""Effects: everything a program can ask of the world.

A program is a generator. It yields the effects below (and the events of `events`), receives the outcome of
each (of `outcomes`), and does nothing else: no clock, no file, no network. A reader who has understood this file has
understood the product. Nothing here knows how an effect is performed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from cuebook.kernel.context import EMPTY, Context, Text
from cuebook.kernel.outcomes import Failed

T = TypeVar("T")

Program: TypeAlias = Generator[Any, Any, T]
"""Yields effects and events, receives outcomes, returns its result."""

Inputs: TypeAlias = Mapping[str, Any]


class Effect(msgspec.Struct, frozen=True, gc=False, tag_field="is", tag=True, omit_defaults=True):
    """A request to the world."""

    @property
    def changes(self) -> bool:
        """Whether performing it can change the world: then an intent is recorded before, the outcome after."""
        return False

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def repeatable(self) -> bool:
        """Whether it may be performed again when nobody knows if it happened."""
        return not self.changes

    @property
    def subject(self) -> str:
        """What the author can see of it: a tool's name, a command, a model. Part of the fingerprint."""
        return ""

    @property
    def fingerprint(self) -> str:
        subject = self.subject
        return f"{self.kind} {subject}" if subject else self.kind


class SecretUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A secret that an effect needs, and the place it belongs. Its value is put there by the performer, at the last
    moment. The place is a part of the effect and never of a text, so that no text can ask for a secret.
    """

    at: str
    """`env.NAME` or `stdin` of a command, `headers.NAME` or `body` of a request, `arguments.NAME` of a tool; of a tool
    server that a playbook brings, the header's name."""
    handle: str
    """`env:NAME`, `keyring:NAME`, `file:PATH`, or a name that was given to one of these."""
    form: str = "{}"
    """The text around it, as in `Bearer {}`."""


class SecretNeed(msgspec.Struct, frozen=True):
    """A secret that a run may use, known before it does."""

    handle: str = ""
    argument: str = ""
    """The input that names the handle, where the playbook itself does not."""
    required: bool = True
    """Whether the run waits until it can be resolved; otherwise it is not used where it is not there."""


OUTPUT_OF = "output of "
"""What the name of a preview's part begins with that shows what an earlier step gave."""


class Acting(Effect, frozen=True, kw_only=True):
    """An effect that changes the world unless it says that it only reads."""

    reads_only: bool = False
    idempotent: bool = False
    secrets: tuple[SecretUse, ...] = ()
    approval: str = ""
    """What a person is asked before it is performed, whatever the policy says; empty: the policy decides."""
    preview: dict[str, str] = {}
    """What whoever approves it is shown besides what it does, such as the output of earlier steps, by name."""
    attempt_at: str = ""
    """What it is an attempt at, where a step makes several at one thing: they share their idempotency key."""
    witnessed: bool = False
    """Whether the journal keeps it, with the ruling that let it through, also where it only reads."""
    doubt: Literal["", "ask", "tell"] = ""
    """Who says what became of it where it got no answer: a person, who is asked, or its program, which is told. Empty: a
    person, unless a model called it, which can look for itself."""

    @property
    def changes(self) -> bool:
        return not self.reads_only

    @property
    def repeatable(self) -> bool:
        return self.reads_only or self.idempotent

    @property
    def needs(self) -> tuple[SecretNeed, ...]:
        """The secrets that it uses."""
        return tuple(SecretNeed(use.handle) for use in self.secrets)


# --- models ---------------------------------------------------------------------------------------


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is shown it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Watch(msgspec.Struct, frozen=True):
    """Names a registered watch: a pure function that reads a reply as it streams and may stop it."""

    name: str
    arguments: dict[str, Any] = {}


class AskModel(Effect, frozen=True):
    prompt: str = ""
    """The last user turn; may be empty where the context ends in one."""
    context: Context = EMPTY
    model: str | None = None
    """`provider/model`, or the run's model."""
    max_tokens: int | None = None
    temperature: float | None = None
    schema: dict[str, Any] | None = None
    """A JSON Schema that the reply must follow."""
    tools: tuple[ToolSpec, ...] = ()
    stop: tuple[str, ...] = ()
    watch: Watch | None = None
    grammar: str = ""
    """A grammar (GBNF) of the replies that make sense, for models that can be held to one; others do not see it."""
    lenient: bool = False
    """Whether a reply that does not follow the schema comes as it is, because the program checks it itself."""
    timeout: float | None = None
    """Seconds for the whole reply, attempts included; otherwise as the provider is configured."""

    @property
    def subject(self) -> str:
        return self.model or ""


# --- actions --------------------------------------------------------------------------------------


class ServerSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool server that a playbook brings. It is used once a person has agreed to exactly this one; a server of the
    same name in the configuration is used instead.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env_names: tuple[str, ...] = ()
    """Variables that the command is given, as they are set where Cuebook runs. Their values count as secrets."""
    headers: dict[str, str] = {}
    secret_headers: tuple[SecretUse, ...] = ()
    """In a form that begins with `Basic `, the user and the password are encoded as HTTP wants it."""

    @property
    def needs(self) -> tuple[SecretNeed, ...]:
        """The secrets that it is given. A variable that is not set is not passed on."""
        variables = tuple(SecretNeed(f"env:{name}", required=False) for name in self.env_names)
        return (*variables, *(SecretNeed(use.handle) for use in self.secret_headers))


class CallTool(Acting, frozen=True):
    tool: str
    arguments: dict[str, Any] = {}
    server: ServerSpec | None = None
    """Where the tool is found, if the playbook brings that along; the tool is named `SERVER.TOOL` all the same."""
    key_at: str = ""
    """The argument that is given the key of this call, the same over all attempts, where the tool takes one."""
    timeout: float | None = None
    max_output: int | None = None
    """Bytes that are kept of the result."""

    @property
    def needs(self) -> tuple[SecretNeed, ...]:
        return super().needs if self.server is None else (*super().needs, *self.server.needs)

    @property
    def subject(self) -> str:
        return self.tool


class RunCommand(Acting, frozen=True):
    argv: tuple[str, ...]
    cwd: str = ""
    """Below the workspace; empty for the workspace itself."""
    env: dict[str, str] = {}
    stdin: str = ""
    timeout: float | None = None
    max_output: int | None = None
    """Bytes that are kept of stdout, and of stderr."""
    network: bool = False
    """Whether it needs the network, which a command otherwise has not. A policy knows this as the tool `network`."""
    from_outside: bool = False
    """Whether what it does depends on a text that a model, a server or a tool has given."""
    ends: bool = False
    """Whether the end of a stdout that is too long is kept as well as its beginning."""

    @property
    def subject(self) -> str:
        return self.argv[0] if self.argv else ""


class SendHttp(Acting, frozen=True):
    method: str
    url: str
    headers: dict[str, str] = {}
    body: str = ""
    timeout: float | None = None
    max_output: int | None = None
    """Bytes that are kept of the body."""

    @property
    def subject(self) -> str:
        return self.method.upper()


class Browse(Acting, frozen=True):
    action: str
    arguments: dict[str, Any] = {}

    @property
    def subject(self) -> str:
        return self.action


class CallNode(Acting, frozen=True):
    node: str
    action: str
    arguments: dict[str, Any] = {}

    @property
    def subject(self) -> str:
        return f"{self.node} {self.action}"


class RunPython(Effect, frozen=True):
    """A function that reaches the world by calls only. It is run from its beginning each time: up to the first call that
    `replies` does not answer yet (`Called`), or to its end (`Returned`).
    """

    function: str
    arguments: dict[str, Any] = {}
    """`args` and `named`."""
    replies: tuple[Any, ...] = ()
    """The calls it has made, in order, each with its `value` or its `error`. Another call in its place is a failure."""
    source: str = ""
    """The text that defines the function."""
    names: tuple[str, ...] = ()
    """What it can call besides the functions of the text: `Name`, or `Agent.Name`."""
    moment: float = 0.0
    """The time that its clock shows."""

    @property
    def subject(self) -> str:
        return self.function


class RunPlaybook(Acting, frozen=True):
    playbook: str
    inputs: dict[str, Any] = {}

    @property
    def subject(self) -> str:
        return self.playbook


class ReadSource(Effect, frozen=True):
    """A text from outside: `file:PATH` below the root, `https://...`, `prompt:NAME` of the library, `mcp:SERVER/NAME`, a
    prompt of a tool server, `skill:ID`, what a skill brings, as JSON, or `tools:NAME`, the tools whose names fit, as JSON.
    """

    source: str
    server: ServerSpec | None = None
    """Whose tools are listed, if the playbook brings that server along."""

    @property
    def subject(self) -> str:
        return self.source


class Send(Acting, frozen=True):
    """A message to someone who watches the run, or to another run."""

    text: str
    to: str = "user"

    @property
    def subject(self) -> str:
        return self.to


# --- people and time ------------------------------------------------------------------------------

QuestionType = Literal["input", "confirm", "select"]


class AskHuman(Effect, frozen=True):
    question: str
    type: QuestionType = "input"
    options: tuple[str, ...] = ()
    default: str | None = None
    expires_after: float | None = None
    """Seconds; none means what the run is set to."""
    label: str = ""
    """What an answer that was given beforehand is found by, besides the labels of the steps it is asked in."""

    @property
    def subject(self) -> str:
        return self.type


class AskApproval(Acting, frozen=True):
    """An approver's yes to what is shown, where that is not a part of an effect: `approval` is what they are asked.

    Gives `Done`; a refusal is the failure `denied`. Nobody can say yes beforehand.
    """

    purpose: str = "step"
    """What it is about: `step`, or `takeover` where a person has to look because nothing else can tell."""

    @property
    def changes(self) -> bool:
        return False

    @property
    def repeatable(self) -> bool:
        return True

    @property
    def subject(self) -> str:
        return self.purpose


class Breakpoint(Effect, frozen=True):
    """A place where the run may pause; the run's settings say whether it does."""

    step: str

    @property
    def subject(self) -> str:
        return self.step


class Wait(Effect, frozen=True):
    """Wait for a time to pass, for a message, or for whichever comes first."""

    seconds: float | None = None
    channel: str | None = None

    @property
    def subject(self) -> str:
        return self.channel or ""


class Bound(Effect, frozen=True):
    """The program has come to a limit that is meant to end what has no end. It fails; a retry of the run lets it pass."""

    name: str
    failed: Failed

    @property
    def subject(self) -> str:
        return self.name


class Now(Effect, frozen=True):
    pass


class Random(Effect, frozen=True):
    pass


# --- structure: not journaled as requests, but understood by the engine ----------------------------


class Checkpoint(Effect, frozen=True):
    """From here on, a replay of this branch starts with `state` instead of its beginning.

    Where there are texts, it starts with `(state, texts)`: long ones are kept once, by digest, and loaded on first use.
    """

    state: Any
    texts: tuple[Text, ...] = ()


class Branch(msgspec.Struct, frozen=True):
    """A sub-program below `All`: made by a function of its last checkpoint's state, or of None."""

    start: Callable[[Any], Program[Any]]


class All(msgspec.Struct, frozen=True):
    """Several effects or branches at once. Gives their outcomes in order; one that failed gives `Failed`."""

    branches: tuple[Effect | Branch, ...]
