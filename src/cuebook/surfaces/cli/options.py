"""Options that several commands share, and the configuration that results from them."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cuebook.config import Config, load
from cuebook.dialects import registry
from cuebook.dialects.options import Option
from cuebook.gate.policy.model import AGENT
from cuebook.kernel.errors import BadInput
from cuebook.surfaces.cli import completion


def not_empty(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Refuses an empty value, such as that of a variable that a script did not set: it would select everything."""
    if value == "" and context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
        raise BadInput(f"{option.opts[0]}: expected a value, got an empty one.", fix="Leave the option out for all.")
    return value


STORE = click.Option(
    ["--store"], metavar="PATH|URL", help="The file or the Postgres database (postgresql://...) that stores the runs."
)
WORKSPACE = click.Option(
    ["--workspace"],
    metavar="FOLDER",
    help="The folder to work in. A run whose folder has moved continues there.",
    shell_complete=completion.any_file,
)
DRAIN = click.Option(
    ["--drain"],
    metavar="SECONDS",
    help="How long effects may take to finish after SIGTERM, before they are cut off; 25 by default.",
)
TEMPORAL: list[click.Parameter] = [
    click.Option(
        ["--temporal", "temporal_address"], metavar="HOST:PORT", help="The Temporal server that brings runs to workers."
    ),
    click.Option(["--namespace", "temporal_namespace"], metavar="NAME", help="The namespace in Temporal."),
    click.Option(
        ["--queue", "temporal_queue"], metavar="NAME", help="The task queue in Temporal; 'cuebook' by default."
    ),
]
LOGS: list[click.Parameter] = [
    click.Option(["--log-format"], metavar="FORMAT", help="How to log on stderr: text or json; text by default."),
    click.Option(["--log-level"], metavar="LEVEL", help="What to log: debug, info, warning or error; info by default."),
]
METRICS = click.Option(
    ["--metrics"],
    metavar="HOST:PORT",
    help="An address for Prometheus, as in 127.0.0.1:9464: /metrics, for anyone who reaches it.",
)
AS_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON on stdout.")
AS_EVENTS = click.Option(["--events", "as_events"], is_flag=True, help="Print every event as a line of JSON on stdout.")
AS_LIVE = click.Option(["--live", "as_live"], is_flag=True, help="Stream as on a terminal, even to a file or a pipe.")
LINES = click.Option(
    ["--lines", "as_lines"], is_flag=True, help="In a conversation, show each line, call and variable as it happens."
)
NO_COLOR = click.Option(["--no-color"], is_flag=True, help="Disable colours, as NO_COLOR in the environment does.")
NO_ASK = click.Option(["--no-ask"], is_flag=True, help="Do not ask here; print how to answer and exit with code 3.")

AS_USER = click.Option(["--as", "as_user"], metavar="NAME", help="Act as this user, with their roles.")

SETTINGS: list[click.Parameter] = [
    click.Option(["--model"], metavar="NAME", help="The model: provider/model, or 'local' for the embedded one."),
    click.Option(["--max-tokens"], metavar="N", help="The maximum number of tokens in a reply."),
    click.Option(["--temperature"], metavar="T", help="The sampling temperature, from 0 to 2."),
    click.Option(["--effort"], metavar="LEVEL", help="How much models reason: low, medium or high."),
    click.Option(["--budget-money"], metavar="USD", help="Pause before spending more than this."),
    click.Option(["--budget-tokens"], metavar="N", help="Pause before using more tokens than this."),
    click.Option(["--budget-seconds"], metavar="S", help="Pause after this many seconds of work."),
    click.Option(["--budget-steps"], metavar="N", help="Pause after this many steps."),
    click.Option(["--pause-expiry"], metavar="TIME", help="How long a pause or question waits: 15m, 24h, 7d or never."),
]
ANSWERS: list[click.Parameter] = [
    click.Option(
        ["--answer"],
        metavar="STEP=VALUE",
        multiple=True,
        help="Answer a step's question in advance; repeatable.",
        shell_complete=completion.answers,
    ),
    click.Option(
        ["--answers"],
        metavar="FILE",
        help="A YAML or JSON file of answers; a list has one answer for each time the step asks.",
        shell_complete=completion.any_file,
    ),
    click.Option(
        ["--unattended"],
        is_flag=True,
        help="Run unattended: questions take their defaults, and breakpoints do not pause.",
    ),
]
POLICY = click.Option(
    ["--policy"],
    type=click.Choice([AGENT]),
    help="Add these rules to the policy, for this run: see `cuebook policy preset`.",
)
BREAK = click.Option(
    ["--break", "breakpoints"],
    metavar="STEPS",
    help="Pause after these steps, as in 2,3.",
    shell_complete=completion.steps_to_pause_after,
)
STRICT_ENVELOPE = click.Option(
    ["--strict-envelope"], is_flag=True, help="Print an envelope with only the fields of the format."
)
ENVELOPE: list[click.Parameter] = [
    click.Option(["--envelope"], is_flag=True, help="Ask no questions, and print one envelope on stdout."),
    STRICT_ENVELOPE,
]
SET = click.Option(["--set", "values"], metavar="NAME=VALUE", multiple=True, help="Change a value; repeatable.")

LIVE: list[click.Parameter] = [AS_JSON, AS_EVENTS, AS_LIVE, LINES, NO_COLOR, NO_ASK]


Given = dict[str, Any]
"""The options and arguments of a call, by name."""


def command(
    name: str, params: Sequence[click.Parameter], **more: Any
) -> Callable[[Callable[[Given], int]], click.Command]:
    """Makes a click command whose function takes one dictionary, because the options come from several lists."""

    def made(function: Callable[[Given], int]) -> click.Command:
        help = inspect.cleandoc(function.__doc__ or "")
        line = " ".join(help.partition("\n\n")[0].split())  # click would truncate it in the list of a group
        return click.Command(
            name, params=list(params), callback=lambda **given: function(given), help=help, short_help=line, **more
        )

    return made


_CHOICE = "option_of_"
"""Separates the names of a dialect's options from the names of other options."""


def choices(several: Iterable[Option]) -> list[click.Parameter]:
    """A click option for each dialect option."""
    by_name = {option.name: option for option in several}
    return [_choice(option) for option in by_name.values()]


def _choice(option: Option) -> click.Option:
    spelled = [f"--{option.name.replace('_', '-')}", f"{_CHOICE}{option.name}"]
    match option.type:
        case "switch":
            return click.Option(spelled, is_flag=True, help=option.help)
        case "number":
            return click.Option(spelled, type=click.IntRange(1), metavar="N", help=option.help)
        case "choice":
            return click.Option(spelled, type=click.Choice(option.choices), help=option.help)
        case "text":
            return click.Option(spelled, metavar="TEXT", help=option.help)


def fitting(params: Iterable[click.Parameter], known: Iterable[Option]) -> list[click.Parameter]:
    """The parameters; options that the playbook's dialect does not have are hidden. A hidden option is still parsed, so
    that the error can name it.
    """
    names = {f"{_CHOICE}{option.name}" for option in known}
    return [_hidden(one) if (one.name or "").startswith(_CHOICE) and one.name not in names else one for one in params]


def _hidden(param: click.Parameter) -> click.Parameter:
    hidden = copy(param)
    if isinstance(hidden, click.Option):
        hidden.hidden = True
    return hidden


def chosen(given: Given) -> dict[str, Any]:
    """The dialect options of this call, by the names that the dialects use."""
    found = {name.removeprefix(_CHOICE): value for name, value in given.items() if name.startswith(_CHOICE)}
    return {name: value for name, value in found.items() if value is not None and value is not False}


_TEMPORAL = ("temporal.address", "temporal.namespace", "temporal.queue")
_SETTINGS = (
    "model",
    "max_tokens",
    "temperature",
    "effort",
    "pause_expiry",
    "budget.money",
    "budget.tokens",
    "budget.seconds",
    "budget.steps",
)


def configuration(given: Given, refused: list[BadInput] | None = None) -> Config:
    """The configuration with these flags. With `refused`, errors about handles of secrets are collected there."""
    names = ("store", *_TEMPORAL, "workspace", *_SETTINGS)
    return load({name: given.get(name.replace(".", "_")) for name in names}, refused=refused)


def temporal(given: Given) -> dict[str, Any]:
    """The settings for Temporal that were passed as flags."""
    return {name: given[name.replace(".", "_")] for name in _TEMPORAL}


def logs(given: Given) -> dict[str, Any]:
    """The settings for logs that were passed as flags."""
    return {f"log.{name}": given[f"log_{name}"] for name in ("format", "level")}


def edits(config: Config) -> dict[str, Any]:
    """The settings that were passed as flags."""
    return {name: config.get(name) for name in _SETTINGS if config.origin(name).place.startswith("--")}


def changed_values(given: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {one}: expected NAME=VALUE.", fix="For example: --set topic=tea.")
        values[name] = value_of(f"--set {name}", value)
    return values


LARGEST = 50_000_000
"""The maximum size in bytes of a file that is not a playbook."""


class NotText(BadInput):
    """The file is not UTF-8 text."""

    code = "not_text"

    def __init__(self, where: str, line: int) -> None:
        super().__init__(f"{where}:{line}: this is not UTF-8 text.", fix="Save it as UTF-8.")
        self.line = line


def value_of(flag: str, value: str) -> str:
    """The value itself, or the text that it refers to: `@file`, or `-` for stdin. A leading `@@` means a literal `@`.

    The final line break of a file or of stdin is removed, because values are inserted into sentences and `echo` adds one.
    """
    if value == "-":
        return _without_line_end(read_stdin(flag))
    if value.startswith("@@"):
        return value[1:]
    if not value.startswith("@"):
        return value
    return _without_line_end(read_text(value[1:], flag))


def _without_line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


def read_stdin(flag: str = "") -> str:
    return _text(flag, "stdin", sys.stdin.buffer.read(LARGEST + 1))


def read_text(path: str, flag: str = "") -> str:
    """The text of a file. Raises `BadInput` with one line that says why it cannot be read."""
    return _text(flag, path, _read(path, flag, LARGEST))


def read_playbook(path: str) -> str:
    """The text of a playbook file, or of stdin for `-`. A file that is too large is read only far enough to detect it."""
    name = "stdin" if path == "-" else path
    if path == "-":
        return _decoded("", name, sys.stdin.buffer.read(registry.LARGEST + 1), registry.text_of)
    if os.path.isdir(path):
        raise BadInput(f"{path} is a folder.", fix=_playbooks_in(path))
    new = f"Check the path; `cuebook new {shlex.quote(path)}` creates a playbook to start from."
    return _decoded("", name, _read(path, "", registry.LARGEST, fix=new), registry.text_of)


def _playbooks_in(folder: str) -> str:
    from cuebook.service.playbooks.library import Stored

    found = sorted(shlex.quote(str(one.path)) for one in Stored([Path(folder)]).all())
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"Name one of its playbooks: {', '.join(found[:5])}{more}." if found else "Pass the path of a file."


def _read(path: str, flag: str, most: int, *, fix: str = "Check the path.") -> bytes:
    """Reads at most one byte beyond the limit: a file may be larger than memory, or endless."""
    prefix = f"{flag}: " if flag else ""
    try:
        with open(path, "rb") as file:
            return file.read(most + 1)
    except FileNotFoundError:
        from cuebook.performers.files.neighbours import instead_of

        raise BadInput(f"{prefix}There is no file {path}.", fix=instead_of(path, fix)) from None
    except IsADirectoryError:
        raise BadInput(f"{prefix}{path} is a folder.", fix="Pass the path of a file.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{prefix}Cannot read {path}: {why}.", fix="Check the path and its permissions.") from None


def _text(flag: str, path: str, data: bytes) -> str:
    if len(data) > LARGEST:
        prefix = f"{flag}: " if flag else ""
        raise BadInput(f"{prefix}{path} has more than {LARGEST:,} bytes.", fix="Use a smaller file.")
    return _decoded(flag, path, data, bytes.decode)


def _decoded(flag: str, path: str, data: bytes, decode: Callable[[bytes], str]) -> str:
    try:
        return decode(data)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise NotText(f"{flag}: {path}" if flag else path, line) from None


def steps_named(given: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for word in (given or "").split(",") if (part := word.strip())))


def check_steps(wanted: tuple[str, ...], known: list[str]) -> None:
    missing = [step for step in wanted if step not in known]
    if missing:
        raise BadInput(f"--break: there is no step {', '.join(missing)}.", fix=f"The steps are {', '.join(known)}.")
