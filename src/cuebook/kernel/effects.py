"""Effects: everything a program can ask of the world.

A program is a generator. It yields the effects below (and the events of `events`), receives the outcome of
each (of `outcomes`), and does nothing else: no clock, no file, no network. If you understand this file, you understand the
product. Nothing here depends on how an effect is performed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from cuebook.kernel.context import EMPTY, Context, Text
from cuebook.kernel.files import FileRef
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.votes import Rule

T = TypeVar("T")

Program: TypeAlias = Generator[Any, Any, T]
"""Yields effects and events, receives outcomes, returns its result."""

Inputs: TypeAlias = Mapping[str, Any]

Effort = Literal["low", "medium", "high"]
"""How much a model reasons before it answers."""


class Effect(msgspec.Struct, frozen=True, gc=False, tag_field="is", tag=True, omit_defaults=True):
    """A request to the world."""

    @property
    def changes(self) -> bool:
        """Whether it can change the world. If so, an intent is recorded before it and the outcome after it."""
        return False

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def repeatable(self) -> bool:
        """Whether it may be performed again when its outcome is unknown."""
        return not self.changes

    @property
    def subject(self) -> str:
        """The part that the author sees, such as a tool's name, a command or a model. Part of the fingerprint."""
        return ""

    @property
    def fingerprint(self) -> str:
        kind, subject = type(self).__name__, self.subject
        return f"{kind} {subject}" if subject else kind


class SecretUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A secret that an effect needs, and where its value goes; the performer fills it in at the last moment. The place
    is a field of the effect, never part of its text, so no text can request a secret.
    """

    at: str
    """`env.NAME`, `credentials.HOST` or `stdin` of a command, `headers.NAME` or `body` of a request, `arguments.NAME` of a tool; for a tool
    server that the playbook defines, the header's name."""
    handle: str
    """`env:NAME`, `keyring:NAME`, `file:PATH`, or a name for one of these."""
    form: str = "{}"
    """The text around the value, as in `Bearer {}`."""


class SecretNeed(msgspec.Struct, frozen=True):
    """A secret that a run may use."""

    handle: str = ""
    argument: str = ""
    """The input that provides the handle, if the playbook does not."""
    required: bool = True
    """Whether the run waits until it can be resolved; a missing optional secret is skipped."""


OUTPUT_OF = "output of "
"""Prefix of the parts of a preview that show the output of an earlier step."""


class Acting(Effect, frozen=True, kw_only=True):
    """An effect that changes the world unless it is marked as read-only."""

    reads_only: bool = False
    idempotent: bool = False
    secrets: tuple[SecretUse, ...] = ()
    approval: str = ""
    """The question for the approver, regardless of the policy. If empty, the policy decides."""
    rule: Rule | None = None
    """Who decides on that approval, and how many of them; None for any approver."""
    preview: dict[str, str] = {}
    """Everything an approver sees in addition to the action, such as the output of earlier steps, by name."""
    attempt_at: str = ""
    """A name shared by several attempts at the same action, which gives them the same idempotency key."""
    witnessed: bool = False
    """Whether the journal records it, with the gate's ruling, even if it only reads."""
    doubt: Literal["", "ask", "tell"] = ""
    """Who decides if its outcome is unknown: the user, who is asked, or the program, which receives the failure. If
    empty, the user decides, unless a model made the call, because a model can check for itself."""

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


AGENTS = "acp/"
"""The provider in the names of coding agents, as in `acp/opencode`."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Watch(msgspec.Struct, frozen=True):
    """The name of a registered watch: a pure function that reads a reply as it streams and may stop it."""

    name: str
    arguments: dict[str, Any] = {}


class AskModel(Effect, frozen=True):
    prompt: str = ""
    """The last user turn; may be empty if the context ends with a user turn."""
    context: Context = EMPTY
    model: str | None = None
    """`provider/model`, or a chain of them as in `a, then b`; None means the run's model."""
    max_tokens: int | None = None
    temperature: float | None = None
    schema: dict[str, Any] | None = None
    """A JSON Schema that the reply must follow."""
    tools: tuple[ToolSpec, ...] = ()
    stop: tuple[str, ...] = ()
    watch: Watch | None = None
    grammar: str = ""
    """A GBNF grammar for replies, sent only to models that support one."""
    lenient: bool = False
    """Whether a reply that does not match the schema is returned unchanged, because the program checks it itself."""
    timeout: float | None = None
    """Seconds for the whole reply, including all attempts; None means the provider's setting."""
    may_call: bool = True
    """Whether the model may call the tools. If not, they are still listed, because earlier turns refer to them."""
    judges: bool = False
    """Whether it judges the work of other calls or decides where the run goes, so that an assistant which does both is
    marked."""
    relays: bool = False
    """Whether the program performs what a coding agent asks of it: permissions, files, commands and tools. Without it, an
    agent can only look, and everything that it asks for is refused."""
    session: str = ""
    """The session of a coding agent that continues here; empty for a new one."""
    effort: Effort | None = None
    """How much the model should reason; None means the run's setting."""
    room: int | None = None
    """The most tokens that the reply may take, whatever the settings say."""

    @property
    def subject(self) -> str:
        return self.model or ""


class PromptAgent(Acting, frozen=True):
    """A prompt to a coding agent, as its intent records it. Programs yield `AskModel`; whether its model acts on the world
    itself is known when it is performed."""

    model: str = ""
    """The agent, as `acp/NAME`."""
    asked: str = ""
    """The model as the program names it; empty for the run's own."""
    prompt: str = ""
    """The beginning of the prompt; `ModelAsked` has all of it."""
    session: str = ""

    @property
    def subject(self) -> str:
        return self.asked

    @property
    def fingerprint(self) -> str:
        return AskModel(model=self.asked or None).fingerprint


# --- actions --------------------------------------------------------------------------------------


class ServerSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool server that a playbook defines. It is used only after someone has approved exactly this definition. A
    server of the same name in the configuration takes precedence.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env_names: tuple[str, ...] = ()
    """Environment variables that are passed to the command. Their values count as secrets."""
    headers: dict[str, str] = {}
    secret_headers: tuple[SecretUse, ...] = ()
    """If the form begins with `Basic `, user and password are encoded as HTTP requires."""

    @property
    def needs(self) -> tuple[SecretNeed, ...]:
        """The secrets that it receives. A variable that is not set is not passed on."""
        variables = tuple(SecretNeed(f"env:{name}", required=False) for name in self.env_names)
        return (*variables, *(SecretNeed(use.handle) for use in self.secret_headers))


class CallTool(Acting, frozen=True):
    tool: str
    arguments: dict[str, Any] = {}
    server: ServerSpec | None = None
    """The tool's server, if the playbook defines it; the tool is still named `SERVER.TOOL`."""
    key_at: str = ""
    """The argument that receives the call's idempotency key, shared by all attempts, if the tool accepts one."""
    timeout: float | None = None
    max_output: int | None = None
    """How many bytes of the result are kept."""
    ends: bool = False
    """Whether the end of the result is kept in addition to its beginning if it is too long."""
    internal: bool = False
    """Whether the program makes it on its own account: for a coding agent's request, or for the run's worktree. Neither a
    playbook nor a model can set it, and the tools for such calls accept no others."""
    granted: tuple[str, ...] = ()
    """The file actions, as `write:PATH`, that the agent was permitted for exactly this content. They are not asked about
    again."""

    @property
    def needs(self) -> tuple[SecretNeed, ...]:
        return super().needs if self.server is None else (*super().needs, *self.server.needs)

    @property
    def subject(self) -> str:
        return self.tool


class RunCommand(Acting, frozen=True):
    argv: tuple[str, ...]
    cwd: str = ""
    """A folder below the workspace; empty for the workspace itself."""
    env: dict[str, str] = {}
    stdin: str = ""
    timeout: float | None = None
    max_output: int | None = None
    """How many bytes of stdout, and of stderr, are kept."""
    network: tuple[str, ...] = ()
    """The hosts that it may reach, each as `HOST` (port 443) or `HOST:PORT`; by default none. For policies, each is an egress
    `CONNECT`, and all together are the tool `network`."""
    from_outside: bool = False
    """Whether it depends on text from a model, a server or a tool."""
    ends: bool = False
    """Whether the end of stdout is kept in addition to its beginning if it is too long."""
    reads: tuple[str, ...] = ()
    """Absolute paths outside the workspace, or below `~/`, that it may read. For policies, each is the file action
    `read:PATH`."""
    files: dict[str, str] = {}
    """The files that it must have produced when it succeeds, by name: paths relative to its folder."""
    takes: dict[str, FileRef] = {}
    """Files that are put into the workspace before it starts, by their paths relative to its folder."""
    credentials: dict[str, str] = {}
    """The user names that git gives to hosts of `network`. Their passwords are secrets."""

    @property
    def subject(self) -> str:
        return self.argv[0] if self.argv else ""


class FormPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a form: a text or a file."""

    name: str
    text: str = ""
    file: FileRef | None = None
    filename: str = ""
    type: str = ""


class SendHttp(Acting, frozen=True):
    method: str
    url: str
    headers: dict[str, str] = {}
    body: str = ""
    timeout: float | None = None
    max_output: int | None = None
    """How many bytes of the body are kept."""
    upload: FileRef | None = None
    """A file that is sent as the body."""
    form: tuple[FormPart, ...] = ()
    """The parts of a body of the type `multipart/form-data`."""
    download: str = ""
    """The name of the file that the body of a successful response is stored in, of any size and type."""

    @property
    def subject(self) -> str:
        return self.method.upper()


class Filled(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field of a page that was filled or selected."""

    selector: str
    value: str = ""
    """Empty if a secret was filled in."""
    select: bool = False
    secret: str = ""
    """The handle of the secret, and below the text around its value."""
    form: str = "{}"


class Browse(Acting, frozen=True):
    """One command to the run's browser. A run has one page, and every command says how to get back to it: by opening
    `page` and repeating `fills`. Clicks are never repeated.
    """

    action: str
    """`navigate`, `click`, `fill`, `select`, `wait`, `extract`, `snapshot` or `download`."""
    arguments: dict[str, Any] = {}
    page: str = ""
    """The URL that the last command left the page at; empty for a navigation."""
    fills: tuple[Filled, ...] = ()
    """The fields that were filled since the page was opened. The secret of number N is the use at `fills.N`."""
    clicks: int = 0
    """The clicks since the page was opened. They cannot be repeated, so the page may look different after a restart."""
    network: tuple[str, ...] = ()
    """The hosts that the browser may reach in addition to the page's own, as for a command."""
    looks: tuple[str, ...] = ()
    """Selectors of elements whose text is part of the outcome."""
    timeout: float | None = None
    max_output: int | None = None
    """How many bytes of the text are kept."""

    @property
    def subject(self) -> str:
        return self.action


class CallNode(Acting, frozen=True):
    """An action on a paired machine."""

    capability: str
    action: str
    arguments: dict[str, Any] = {}
    """A secret is the use at `arguments.NAME`, and not among them."""
    node: str = ""
    """The name of the node; empty for the only one that offers the capability."""
    timeout: float | None = None
    """Seconds for waiting until the node is connected, and for the action. None waits for the node without a limit."""
    max_output: int | None = None
    """How many bytes of its text, and of its error output, are kept."""

    @property
    def subject(self) -> str:
        return f"{self.node} {self.capability} {self.action}".lstrip()


class RunPython(Effect, frozen=True):
    """A function that affects the world only through calls. It always runs from its beginning, to the first call that
    `replies` does not answer yet (`Called`) or to its end (`Returned`).
    """

    function: str
    arguments: dict[str, Any] = {}
    """`args` and `named`."""
    replies: tuple[Any, ...] = ()
    """The calls it has made, in order, each with its `value` or its `error`. A different call is a failure."""
    source: str = ""
    """The source that defines the function."""
    names: tuple[str, ...] = ()
    """The names it can call in addition to the functions of the source: `Name` or `Agent.Name`."""
    moment: float = 0.0
    """The time that its clock returns."""

    @property
    def subject(self) -> str:
        return self.function


class RunPlaybook(Acting, frozen=True):
    """Runs another playbook, of any dialect, as a child run. Its text was pinned when this run started."""

    playbook: str
    """The name that the author wrote."""
    inputs: dict[str, Any] = {}

    @property
    def repeatable(self) -> bool:
        """After a crash, its child continues where it stopped, so nothing is repeated."""
        return True

    @property
    def subject(self) -> str:
        return self.playbook


class ReadSource(Effect, frozen=True):
    """Text from outside: `file:PATH` below the root, `https://...`, `prompt:NAME` of the prompt library, `mcp:SERVER/NAME`
    (a prompt of a tool server), `skill:ID` (the parts of a skill, as JSON), or `tools:NAME` (the matching tools, as JSON).
    """

    source: str
    server: ServerSpec | None = None
    """The server whose tools are listed, if the playbook defines it."""

    @property
    def subject(self) -> str:
        return self.source


class Send(Acting, frozen=True):
    """A message to an observer of the run, or to another run."""

    text: str
    to: str = "user"

    @property
    def subject(self) -> str:
        return self.to


# --- people and time ------------------------------------------------------------------------------

QuestionType = Literal["input", "confirm", "select", "form"]


class AskHuman(Effect, frozen=True):
    question: str
    type: QuestionType = "input"
    options: tuple[str, ...] = ()
    default: str | None = None
    expires_after: float | None = None
    """Seconds; None means the run's setting."""
    label: str = ""
    """The name under which an answer can be given in advance, in addition to the labels of its steps."""
    schema: dict[str, Any] | None = None
    """For a form: the JSON Schema that the answer follows. The answer is JSON text."""
    by: tuple[str, ...] = ()
    """Who may answer: names, and roles as `role:NAME`; if empty, everyone who may answer questions."""

    @property
    def subject(self) -> str:
        return self.type


class AskApproval(Acting, frozen=True):
    """Asks for an approval that is not part of another effect: `approval` is the question.

    Returns `Done`; a refusal is the failure `denied`. It cannot be approved in advance.
    """

    purpose: str = "step"
    """Its reason: `step`, or `takeover` if someone has to check because there is no other evidence."""

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
    """A point where the run may pause; the run's settings decide whether it does."""

    step: str

    @property
    def subject(self) -> str:
        return self.step


class Wait(Effect, frozen=True):
    """Waits for a time to pass, for a message, or for whichever comes first."""

    seconds: float | None = None
    channel: str | None = None
    about: str = ""
    """What people see while it waits for a time."""

    @property
    def subject(self) -> str:
        return self.channel or ""


class Bound(Effect, frozen=True):
    """The program has reached a limit that prevents endless loops. The effect fails, but succeeds when the run is
    retried."""

    name: str
    failed: Failed

    @property
    def subject(self) -> str:
        return self.name


class Recall(Effect, frozen=True):
    """Something that earlier runs of the same playbook left: with `kind` `output`, the output of the step `name` in the last
    run that completed (`Source`, whose digest is the run's id); with `state`, the value kept under that name. `Done(None)`
    if there is none. Runs of one playbook have the same tenant, workspace and playbook name. With `notes`, the events `Noted`
    of that name that this run has yielded so far, in all its branches (`Source`, a list as JSON).
    """

    kind: Literal["output", "state", "notes"]
    name: str

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.name}"


class Remember(Effect, frozen=True):
    """Keeps a small value for later runs of the same playbook, in place of any earlier value; null removes it."""

    name: str
    value: Any = None

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

    With texts, it starts with `(state, texts)`: long texts are stored once, by digest, and loaded on first use.
    """

    state: Any
    texts: tuple[Text, ...] = ()


class Branch(msgspec.Struct, frozen=True):
    """A sub-program below `All`, created by a function from the state of its last checkpoint, or from None."""

    start: Callable[[Any], Program[Any]]
    worktree: str = ""
    """The git worktree in which its effects are performed; empty for that of the program that starts it."""


class WithTexts(msgspec.Struct, frozen=True):
    """The result of a branch that contains long texts. `All` returns it as `(value, texts)`: the texts are stored once, by
    digest, and loaded on first use.
    """

    value: Any
    texts: tuple[Text, ...] = ()


class All(msgspec.Struct, frozen=True):
    """Runs several effects or branches at once. Returns their outcomes in order, with `Failed` for a failure."""

    branches: tuple[Effect | Branch, ...]
    at_once: int = 0
    """How many branches run at the same time; 0 for all of them. The next one begins when one has ended."""
    until: Literal["", "failure", "success"] = ""
    """What ends it early: the first failure, after which no further branch begins but those under way continue to their end,
    or the first success, after which those under way are interrupted. Both need branches that are programs."""
