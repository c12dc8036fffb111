"""`cuebook trigger`: runs of playbooks for signed requests, changed files, and completed runs of other playbooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import BadInput
from cuebook.service.service import Service
from cuebook.service.triggers.events import (
    EVENT_TRIGGERS,
    AfterTrigger,
    EventTrigger,
    FileTrigger,
    Webhook,
    check_paths,
)
from cuebook.service.triggers.trigger import Target
from cuebook.service.triggers.watchers import check_folder
from cuebook.surfaces.cli import session
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbook_command import PlaybookCommand
from cuebook.surfaces.cli.trigger_commands import (
    ALLOW,
    TARGET,
    add_trigger,
    list_command,
    managing,
    name_of,
    overlap_option,
)

HELP = """Run a playbook when something happens.

FILE is read again at each event, so its runs follow the file. A server (`cuebook serve`) or a worker starts the runs; of
several on one store, one does. The command shows what the runs would ask for approval, and --allow gives the trigger a
standing permission for exactly that, as `cuebook schedule add` does.

--github, --slack and --hmac accept signed requests at /hooks/NAME of the server; --secret names the secret, as
`cuebook secrets add` or [secrets] in cuebook.toml does. --hmac is the scheme of Standard Webhooks (headers webhook-id,
webhook-timestamp and webhook-signature). --files fires for new and changed files in a folder of the workspace, --after for
completed runs of another playbook.

--map fills in an input from the event: of a webhook, from its body, as in --map title=pull_request.title; of a file, `path`,
`file` (below the folder), `name` or `size`; of a run, `run`, `playbook`, `owner` or `result`.

Examples:

\b
cuebook trigger add FILE --github --secret hook --event push --map branch=ref
cuebook trigger add FILE --files inbox --pattern '*.csv' --map path=path
cuebook trigger add FILE --after tea.md
"""

_SCHEMES = ("github", "slack", "hmac")
_ADD: list[click.Parameter] = [
    *TARGET,
    click.Option(["--github"], is_flag=True, help="For requests that GitHub signs."),
    click.Option(["--slack"], is_flag=True, help="For requests that Slack signs."),
    click.Option(["--hmac"], is_flag=True, help="For requests that are signed as Standard Webhooks."),
    click.Option(["--secret"], metavar="NAME", help="The name of the secret with which requests are signed."),
    click.Option(["--event", "events"], metavar="NAME", multiple=True, help="With --github: only this event; repeatable."),
    click.Option(["--files"], metavar="FOLDER", help="For files in this folder of the workspace."),
    click.Option(["--pattern"], metavar="PATTERN", default="*", help="With --files: only names like this, as in *.csv."),
    click.Option(["--after"], metavar="PLAYBOOK", help="For completed runs of this playbook, by the name of its file."),
    click.Option(["--map", "mapping"], metavar="INPUT=PATH", multiple=True, help="Fill in an input from the event; repeatable."),
    click.Option(["--only"], metavar="PATH=VALUE", multiple=True, help="Only if the event has this value; repeatable."),
    overlap_option("parallel", "up to 100 do"),
    *ALLOW,
]  # fmt: skip


def _add(given: Given, playbook: Playbook) -> int:
    kinds = [name for name in (*_SCHEMES, "files", "after") if given[name]]
    if len(kinds) != 1:
        got = f", not {' and '.join(f'--{one}' for one in kinds)}" if kinds else ""
        raise BadInput(
            f"Expected exactly one of --github, --slack, --hmac, --files and --after{got}.",
            fix="`cuebook trigger add --help` explains them.",
        )
    name = name_of(given, playbook, "trigger")
    mapping, only = _pairs("--map", given["mapping"]), _pairs("--only", given["only"])
    check_paths(mapping, "--map")
    _check_flags(given)
    make = _webhook if _scheme(given) else _files if given["files"] else _after

    def made(service: Service, target: Target, owner: str, tenant: str) -> EventTrigger:
        fields = {
            "tenant": tenant,
            "name": name,
            "owner": owner,
            "target": target,
            "created": service.clock(),
            "overlap": given["overlap"],
            "mapping": mapping,
            "only": only,
        }
        return make(given, fields)

    return add_trigger(given, playbook, made, tuple(mapping))


def _scheme(given: Given) -> str:
    """How the requests of a webhook are signed; empty for another kind of trigger."""
    return next((name for name in _SCHEMES if given[name]), "")


def _check_flags(given: Given) -> None:
    """Raises `BadInput` for options of another kind of trigger."""
    scheme = _scheme(given)
    if scheme and not given["secret"]:
        raise BadInput("--secret is missing: the name of the secret with which requests are signed.", fix="Add it with"
                       " `cuebook secrets add NAME HANDLE`, and pass --secret NAME.")  # fmt: skip
    if given["secret"] and not scheme:
        raise BadInput("--secret applies to --github, --slack and --hmac.", fix="Leave it out.")
    if given["events"] and scheme != "github":
        raise BadInput("--event applies to --github.", fix="Use --only PATH=VALUE.")
    if given["pattern"] != "*" and not given["files"]:
        raise BadInput("--pattern applies to --files.", fix="Leave it out.")


def _webhook(given: Given, fields: dict[str, Any]) -> EventTrigger:
    return Webhook(**fields, scheme=_scheme(given), secret=given["secret"], events=tuple(given["events"]))


def _files(given: Given, fields: dict[str, Any]) -> EventTrigger:
    workspace = Path(session.wiring_of(given).factory.workspace.path)
    folder = check_folder(Path(given["files"]), workspace)
    return FileTrigger(**fields, folder=folder, pattern=given["pattern"], since=fields["created"])


def _after(given: Given, fields: dict[str, Any]) -> EventTrigger:
    return AfterTrigger(**fields, after=Path(given["after"]).name)


_FORMS = {"--map": ("INPUT=PATH", "title=pull_request.title"), "--only": ("PATH=VALUE", "action=opened")}
"""The form of each repeatable option of pairs, with an example."""


def _pairs(flag: str, given: tuple[str, ...]) -> dict[str, str]:
    form, example = _FORMS[flag]
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise BadInput(f"{flag} {one}: expected {form}.", fix=f"For example: {flag} {example}.")
        found[name] = value
    return found


@click.group("trigger", help="Run playbooks for webhooks, changed files and completed runs.")
def trigger_command() -> None:
    pass


_list = list_command(
    EVENT_TRIGGERS,
    "List the triggers, what fires each, and what became of its last firing.",
    "There are no triggers. `cuebook trigger add --help` explains how to add one.",
)
_add_command = PlaybookCommand("add", _ADD, HELP, "Run {title} when something happens.", _add)
_add_command.short_help = "Run a playbook when something happens."

for _command in (_add_command, _list, *managing("trigger", EVENT_TRIGGERS)):
    trigger_command.add_command(_command)
