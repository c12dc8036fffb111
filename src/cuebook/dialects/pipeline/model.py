"""The data model of a pipeline: typed steps with contracts. Frozen, with the source line of each. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec

from cuebook.dialects.children import ChildUse
from cuebook.dialects.dialect import Demand, Document, Input
from cuebook.dialects.findings import Problem
from cuebook.kernel.events import PlannedStep
from cuebook.kernel.files import FileRef
from cuebook.kernel.tool_names import READING
from cuebook.kernel.votes import Rule

Namespace = Literal["cli", "http", "web", "mcp", "node", "llm", "input", "playbook", "steps", "parallel", "wait"]
"""The namespace of a command, or the kind of a step without one."""

ArgType = Literal["string", "number", "integer", "boolean", "object", "array"]


class Arg(msgspec.Struct, frozen=True):
    """An argument that a pipeline declares."""

    name: str
    type: ArgType | None = None
    """None if undeclared, which allows any value."""
    default: Any = None
    has_default: bool = False
    required: bool = False
    secret: bool = False
    """Whether it accepts the handle of a secret instead of a value."""
    sensitive: bool = False
    """Whether its values are shown nowhere."""
    enum: tuple[Any, ...] = ()
    description: str = ""
    line: int = 0
    beyond: tuple[str, ...] = ()
    """The fields in use that the published format does not have."""


# --- values that are resolved when a step runs --------------------------------------------------------------


class ArgRef(msgspec.Struct, frozen=True):
    """`${name}`: an argument."""

    name: str


class StepRef(msgspec.Struct, frozen=True):
    """`$step.path` or `${step.path}`: a field of an earlier step's result."""

    step: str
    path: tuple[str | int, ...]
    """Begins with a field of a result, such as stdout or json; the parser has the list."""


class LocalRef(msgspec.Struct, frozen=True):
    """A value that exists only in a part of the pipeline: the item of a loop (`${item.path}`), the loop itself (`$loop.index`,
    `$loop.key`), or in `on_failure` and `finally` the failure (`$failure.step`)."""

    name: str
    path: tuple[str | int, ...] = ()


class RunRef(msgspec.Struct, frozen=True):
    """`$run.date`, `$previous.step.path`, `$state.name` or `$changes.feedback`: what is known of the run, of the runs before it,
    and of the changes that were requested."""

    source: Literal["run", "previous", "state", "changes"]
    path: tuple[str | int, ...]


Ref = ArgRef | StepRef | RunRef | LocalRef


class Function(msgspec.Struct, frozen=True):
    """`default(...)`, `contains(...)`, `length(...)` or `trim(...)`, in a condition or within `${...}`."""

    name: Literal["default", "contains", "length", "trim"]
    operands: tuple[Any, ...]
    """Each a Constant, a reference or another expression."""
    text: str = ""
    """As written."""


class Words(msgspec.Struct, frozen=True):
    """Text with references. If it is a single reference, the value keeps its type."""

    parts: tuple[str | Ref | Function, ...]
    line: int = 0


class Secret(msgspec.Struct, frozen=True):
    """A secret in a field, with the text around it: `secret:HANDLE` or a secret argument."""

    handle: str = ""
    arg: str = ""
    """The argument that contains the handle, if `handle` is empty."""
    form: str = "{}"
    line: int = 0


class Credential(msgspec.Struct, frozen=True):
    """How git signs in at a host."""

    username: Words
    password: Secret


Field = Any
"""A value in an action: Words, Secret, a plain value, or lists and objects of these."""


# --- actions ------------------------------------------------------------------------------------------------


class Cli(msgspec.Struct, frozen=True, tag="cli"):
    argv: tuple[Words, ...]


class FormField(msgspec.Struct, frozen=True):
    """One part of a form: a text, or a file of an earlier step."""

    name: str
    text: Words | None = None
    file: StepRef | FileRef | None = None
    filename: str = ""
    type: str = ""


class Http(msgspec.Struct, frozen=True, tag="http"):
    method: str
    url: Words
    query: dict[str, Words] = {}
    """Parameters appended to the URL, with each value escaped."""
    headers: dict[str, Words | Secret] = {}
    body: Words | Secret | None = None
    json: Field = None
    has_json: bool = False
    """Whether the body is the field `json`, encoded as JSON."""
    upload: StepRef | FileRef | None = None
    """The file that is the body."""
    form: tuple[FormField, ...] = ()
    download: str = ""
    """The name of the file that the response is stored in."""

    @property
    def has_content(self) -> bool:
        return self.body is not None or self.has_json or self.upload is not None or bool(self.form)


class Mcp(msgspec.Struct, frozen=True, tag="mcp"):
    tool: str
    """`SERVER.TOOL`"""
    arguments: dict[str, Field] = {}


class NodeCall(msgspec.Struct, frozen=True, tag="node"):
    """An action of a paired machine."""

    capability: str
    action: str
    arguments: dict[str, Field] = {}


WebCommand = Literal["navigate", "click", "fill", "select", "wait", "extract", "snapshot", "download"]


class Web(msgspec.Struct, frozen=True, tag="web"):
    """A command to the browser of the run."""

    command: WebCommand
    arguments: dict[str, Field] = {}

    @property
    def clicks(self) -> bool:
        """Whether it clicks on something, which may change the world."""
        return self.command == "click" or (self.command == "download" and "selector" in self.arguments)

    @property
    def download(self) -> str:
        """The name of the file that it stores; empty if it stores none."""
        return str(self.arguments.get("download", ""))


DEFAULT_MODEL = "default"
"""The name that refers to the run's model."""


class Llm(msgspec.Struct, frozen=True, tag="llm"):
    model: str
    """`provider/model`, or `default` for the run's model."""
    prompt: Words
    tools: tuple[str, ...] = ()
    max_tool_calls: int = 0
    max_tokens: int | None = None
    """Tokens that the step may use in total, input and output."""
    max_repairs: int = 1
    """How often a reply that breaks the contract is sent back for repair, without tools."""


class Question(msgspec.Struct, frozen=True, tag="input"):
    """A question to a person, whose answer is the step's output."""

    text: Words
    schema: dict[str, Any] | None = None
    """The JSON Schema of the answer; None for any text."""
    default: str | None = None
    """The default answer, as JSON text if there is a schema."""
    by: tuple[str, ...] = ()
    """Who may answer: names, and roles as `role:NAME`."""
    expires: float | None = None
    """Seconds."""
    line: int = 0


class Child(msgspec.Struct, frozen=True, tag="playbook"):
    """Another playbook, which runs as a child."""

    playbook: str
    """Its id, or the path of a file next to the pipeline."""
    inputs: dict[str, Field] = {}


class Group(msgspec.Struct, frozen=True, tag="steps"):
    """The steps that a loop runs for each item, one after another."""

    steps: tuple[Step, ...]


class Lane(msgspec.Struct, frozen=True):
    """A branch of a parallel step."""

    name: str
    steps: tuple[Step, ...]
    line: int = 0


class Parallel(msgspec.Struct, frozen=True, tag="parallel"):
    """Branches that run at the same time, until all have ended or any has succeeded."""

    mode: Literal["all", "any"]
    lanes: tuple[Lane, ...]


class Pause(msgspec.Struct, frozen=True, tag="wait"):
    """Waits for a time to pass, or until a date. Exactly one of them is set."""

    seconds: Words | None = None
    """A duration, as in `10m`."""
    at: Words | None = None
    """A date and time."""


Action = Cli | Http | Web | Mcp | NodeCall | Llm | Question | Child | Group | Parallel | Pause


class Approval(msgspec.Struct, frozen=True):
    """What an approver reads and sees, and who decides."""

    text: Words | None = None
    show: tuple[tuple[str, Words], ...] | None = None
    """The evidence, each with a name or an empty string; None for the outputs that the step uses."""
    rule: Rule = Rule()
    changes_at_most: int = 0
    """How often changes can be requested."""
    line: int = 0


# --- contracts ------------------------------------------------------------------------------------------------


class Output(msgspec.Struct, frozen=True):
    type: Literal["text", "json"]
    schema: dict[str, Any] | bool | None = None
    max_bytes: int | None = None
    line: int = 0
    may_be_cut: bool = False
    """Whether later steps may use an output of which only the beginning was kept."""


class HttpStatus(msgspec.Struct, frozen=True, tag="http_status"):
    equals: int


class DomContains(msgspec.Struct, frozen=True, tag="dom_contains"):
    text: str | Words
    selector: str = ""
    case_insensitive: bool = False


class JsonPath(msgspec.Struct, frozen=True, tag="json_path"):
    path: tuple[str | int, ...]
    equals: Any
    written: str = ""


class ExitCode(msgspec.Struct, frozen=True, tag="exit_code"):
    equals: int


class OutputContains(msgspec.Struct, frozen=True, tag="output_contains"):
    text: str | Words
    stream: Literal["stdout", "stderr"] = "stdout"


class FileHolds(msgspec.Struct, frozen=True, tag="file"):
    path: Words
    exists: bool = True
    contains: str | Words = ""


class CommandHolds(msgspec.Struct, frozen=True, tag="command"):
    """A command that only reads must succeed."""

    argv: tuple[Words, ...]
    contains: str | Words = ""
    """Text that its output must contain."""


EXPECTED = ("text", "contains", "equals")
"""The fields of an assertion that may contain references, which are then `Words`."""
Assertion = HttpStatus | DomContains | JsonPath | ExitCode | OutputContains | FileHolds | CommandHolds


def references_of(assertion: Assertion) -> list[str]:
    """The fields of an assertion that have references."""
    return [name for name in EXPECTED if isinstance(getattr(assertion, name, None), Words)]


class Postcondition(msgspec.Struct, frozen=True):
    assertions: tuple[Assertion, ...]
    metadata: dict[str, Any] = {}
    line: int = 0


class Retry(msgspec.Struct, frozen=True):
    max_attempts: int
    delay: float = 1.0
    """Seconds before the second attempt."""
    backoff: Literal["fixed", "exponential"] = "fixed"
    max_delay: float | None = None
    """Maximum delay in seconds. None means a minute, or `delay` if that is longer."""
    jitter: bool = False


# --- conditions -----------------------------------------------------------------------------------------------


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    value: Any


class Operation(msgspec.Struct, frozen=True, tag="operation"):
    """`!`, `&&`, `||` or a comparison."""

    operator: Literal["!", "&&", "||", "==", "!=", "<", "<=", ">", ">="]
    operands: tuple[Any, ...]
    """Each a Constant, a reference, a Function or another Operation."""


Condition = Constant | Ref | Function | Operation


# --- flow -----------------------------------------------------------------------------------------------------


class Each(msgspec.Struct, frozen=True):
    """Repeats a step for each item of a list."""

    over: Field
    name: str = "item"
    """The name that refers to the item."""
    key: Words | None = None
    """The name of an item in labels and results; None means its index."""
    concurrency: int = 1
    line: int = 0


class Until(msgspec.Struct, frozen=True):
    """Repeats a step that only reads until a condition holds."""

    condition: Condition | None
    text: str
    every: float
    """Seconds between two attempts."""
    timeout: float
    """Seconds after which the step fails."""


class Reaction(msgspec.Struct, frozen=True):
    """What happens instead if an approval is denied, or not given in time."""

    then: Literal["continue", "skip_rest"] = "continue"
    steps: tuple[Step, ...] = ()
    """The steps that run before it continues."""


# --- the document ------------------------------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True):
    id: str
    action: Action
    name: str = ""
    command: str = ""
    """The command as written; empty if `with` contains all of it."""
    stdin: Words | Secret | None = None
    condition: Condition | None = None
    condition_text: str = ""
    approval: bool = False
    asked: Approval | None = None
    """The approval in detail, if the author says more than that it is required."""
    output: Output | None = None
    postcondition: Postcondition | None = None
    rollback_hint: str = ""
    """The hint as written."""
    undo: Words | None = None
    """The parsed `rollback_hint`, if it refers to arguments."""
    rollback: Step | None = None
    """The step that undoes it."""
    timeout: float | None = None
    """Seconds."""
    retry: Retry | None = None
    on_error: Literal["stop", "continue", "skip_rest"] = "stop"
    env: dict[str, Words | Secret] = {}
    cwd: str = ""
    effect: Literal["read", "write"] | None = None
    """The declared effect; None if undeclared."""
    network: tuple[str, ...] = ()
    """The hosts that its command may reach."""
    credentials: dict[str, Credential] = {}
    """How git signs in at these hosts."""
    reads: tuple[str, ...] = ()
    """The paths outside the workspace that its command may read."""
    files: dict[str, Words] = {}
    """The files that its command produces, by name: paths in its folder."""
    takes: dict[str, StepRef | FileRef] = {}
    """Files of earlier steps that are put into its folder first, by path."""
    state: dict[str, Field] = {}
    """The values that are kept for later runs once the step has completed."""
    each: Each | None = None
    until: Until | None = None
    node: Words | None = None
    """The node that performs its action; None for the only one that offers the capability."""
    idempotent: bool = False
    """Whether the node's action may be repeated when its outcome is unknown."""
    on_denied: Reaction | None = None
    """None if a denial ends the run."""
    on_expired: Reaction | None = None
    beyond: tuple[str, ...] = ()
    """The fields in use that the published format does not have."""
    from_outside: bool = False
    """Whether its command depends on the output of a model, a server or a tool in an earlier step."""
    line: int = 0

    @property
    def namespace(self) -> Namespace:
        match self.action:
            case Cli():
                return "cli"
            case Http():
                return "http"
            case Web():
                return "web"
            case Mcp():
                return "mcp"
            case NodeCall():
                return "node"
            case Llm():
                return "llm"
            case Question():
                return "input"
            case Child():
                return "playbook"
            case Group():
                return "steps"
            case Parallel():
                return "parallel"
            case Pause():
                return "wait"

    @property
    def inner(self) -> tuple[Step, ...]:
        """The steps inside it, without those further inside."""
        found: tuple[Step, ...] = ()
        if isinstance(self.action, Group):
            found = self.action.steps
        elif isinstance(self.action, Parallel):
            found = tuple(step for lane in self.action.lanes for step in lane.steps)
        for reaction in (self.on_denied, self.on_expired):
            found += reaction.steps if reaction is not None else ()
        return found

    @property
    def is_structure(self) -> bool:
        """Whether it only contains other steps, or waits, and does nothing itself."""
        return isinstance(self.action, Group | Parallel | Pause)

    @property
    def reads_only(self) -> bool:
        """Whether it changes nothing: it calls a model, sends a request that only reads, or is declared `effect:
        read`."""
        match self.action:
            case Web():
                return not self.action.clicks
            case Llm(tools=tools):
                return READING.issuperset(tools)
            case Question() | Child():  # the steps of a child say themselves what they change
                return True
            case Http(method=method) if self.effect is None:
                return method in ("GET", "HEAD", "OPTIONS")
            case Group() | Parallel() | Pause():
                return True
            case _:
                return self.effect == "read"


class NamedModel(msgspec.Struct, frozen=True):
    """A model that a step uses."""

    name: str
    at: str
    """The field that names it."""


class Pipeline(Document, msgspec.Struct, frozen=True, dict=True):
    """A parsed pipeline."""

    id: str
    name: str
    steps: tuple[Step, ...]
    description: str = ""
    version: str = ""
    args: dict[str, Arg] = {}
    allowed_domains: tuple[str, ...] = ()
    consent_boundary: str = ""
    on_failure: tuple[Step, ...] = ()
    """The steps that run after a failure."""
    finally_: tuple[Step, ...] = ()
    """The steps that run at the end of every run, however it ends."""
    beyond: tuple[str, ...] = ()
    """The fields in use that the published format does not have."""
    warnings: tuple[Problem, ...] = ()

    @cached_property
    def every(self) -> tuple[Step, ...]:
        """All steps in the order of the text, including those inside others."""
        found: list[Step] = []
        waiting = [*self.steps, *self.on_failure, *self.finally_][::-1]
        while waiting:
            step = waiting.pop()
            found.append(step)
            waiting += step.inner[::-1]
        return tuple(found)

    @cached_property
    def _by_id(self) -> dict[str, Step]:
        return {step.id: step for step in self.every}

    def step(self, label: str) -> Step | None:
        """The step with this label. The label of a loop's item ends with its key, as in `send[42]`."""
        return self._by_id.get(label.partition("[")[0])

    @property
    def models(self) -> tuple[NamedModel, ...]:
        asking = [(step.id, step.action.model) for step in self.every if isinstance(step.action, Llm)]
        return tuple(NamedModel(model, f"steps.{label}.llm.model") for label, model in asking if model != DEFAULT_MODEL)

    @property
    def title(self) -> str:
        return self.name

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(
            Input(
                arg.name,
                "secret" if arg.secret else arg.type or "any",
                arg.required,
                _written(arg.default) if arg.has_default else None,
                tuple(_written(one) for one in arg.enum),
                arg.description,
                arg.sensitive,
            )
            for arg in self.args.values()
        )

    @cached_property
    def plan(self) -> tuple[PlannedStep, ...]:
        return tuple(PlannedStep(step.id, step.name or step.id) for step in (*self.steps, *self.finally_))

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """The limits that its steps set."""
        times = [Demand(one.id, "timeout_ms", seconds=one.timeout, line=one.line) for one in self.every if one.timeout]
        sizes = [
            Demand(one.id, "output.max_bytes", output=one.output.max_bytes, line=one.output.line)
            for one in self.every
            if one.output is not None and one.output.max_bytes
        ]
        return (*times, *sizes)

    @cached_property
    def children(self) -> tuple[ChildUse, ...]:
        """The playbooks that its steps start."""
        found = [(step, step.action) for step in self.every if isinstance(step.action, Child)]
        return tuple(
            ChildUse(one.playbook, step.id, step.line, tuple(one.inputs), _known(one.inputs), _handles(one.inputs))
            for step, one in found
        )

    @cached_property
    def secrets(self) -> tuple[Secret, ...]:
        """All secrets that its steps use."""
        found: list[Secret] = []
        waiting: list[Any] = [self.steps, self.on_failure, self.finally_]
        while waiting:
            one = waiting.pop(0)
            if isinstance(one, Secret):
                found.append(one)
            elif isinstance(one, dict):
                waiting += one.values()
            elif isinstance(one, list | tuple):
                waiting += one
            elif isinstance(one, msgspec.Struct):
                waiting += [getattr(one, name) for name in one.__struct_fields__]
        return tuple(found)

    @property
    def asks_model(self) -> bool:
        """Whether any step calls a model."""
        return any(isinstance(step.action, Llm) for step in self.every)

    @property
    def needs_model(self) -> bool:
        """Whether any step calls the run's model."""
        return any(isinstance(step.action, Llm) and step.action.model == "default" for step in self.every)

    @property
    def starts_playbooks(self) -> bool:
        return bool(self.children)

    @property
    def policy(self) -> dict[str, Any] | None:
        """Its own network rules, which can only make the policy stricter."""
        return {"allowed_domains": list(self.allowed_domains)} if self.allowed_domains else None


def _known(inputs: dict[str, Field]) -> dict[str, Any]:
    """The inputs without references."""

    def plain(value: Any) -> bool:
        if isinstance(value, dict):
            return all(map(plain, value.values()))
        return all(map(plain, value)) if isinstance(value, list | tuple) else not isinstance(value, Words | Secret)

    return {name: value for name, value in inputs.items() if plain(value)}


def _handles(inputs: dict[str, Field]) -> tuple[str, ...]:
    return tuple(name for name, value in inputs.items() if isinstance(value, Secret))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
