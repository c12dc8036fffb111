"""`cuebook new`: creates a small valid playbook to start from."""

from __future__ import annotations

import json
import os
import re
import shlex

import click

from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect
from cuebook.dialects.findings import Finding
from cuebook.kernel.errors import BadInput
from cuebook.surfaces.cli import options
from cuebook.surfaces.cli.commands.validate import write_text
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.wiring.surroundings import MachineSurroundings

_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


def _templates() -> list[str]:
    """The names of all templates, starting with the default dialect's."""
    usual = registry.named(registry.DEFAULT)
    return list(dict.fromkeys(name for dialect in (usual, *registry.dialects()) for name in dialect.templates))


def _dialects() -> list[str]:
    return list(dict.fromkeys((registry.DEFAULT, *(dialect.name for dialect in registry.dialects()))))


@command(
    "new",
    [
        click.Argument(["name"]),
        click.Option(
            ["--template"],
            type=click.Choice(_templates()),
            help="The template; by default, the dialect's first template.",
        ),
        click.Option(
            ["--dialect"],
            type=click.Choice(_dialects()),
            help=f"The dialect; by default, the one indicated by the suffix of NAME, or {registry.DEFAULT}.",
        ),
        click.Option(["--from", "description"], metavar="TEXT", help="Let the model draft it from a description."),
        *options.SETTINGS[:2],
    ],
)
def new_command(given: Given) -> int:
    """Create a small playbook to start from.

    NAME is a name or path; if it has no suffix, the dialect's usual suffix is added. An existing file is never overwritten.
    With --from, the configured model drafts the playbook: the draft is checked, corrected at most twice, and saved only
    if it is valid. TEXT may be @FILE, or - for stdin.

    \b
    linear     inputs and steps, one after the other
    branching  a step that branches on the result of an earlier step
    questions  the user chooses, comments and confirms
    tools      a tool is called, and a model reads its result
    """
    dialect = registry.named(given["dialect"]) if given["dialect"] else registry.by_suffix(given["name"])
    path = _path(given["name"], dialect.suffixes)
    if given["description"] is not None:
        if given["template"]:
            raise BadInput("--template and --from are mutually exclusive.", fix="Choose one.")
        text = _drafted(given, path, dialect)
    else:
        text = _filled(_template(dialect, given["template"]), path)
    write_text(path, text, replace=False)
    say(path)
    complain(f"`cuebook run {shlex.quote(path)} --help` shows how to run it.")
    return 0


def _template(dialect: Dialect, name: str | None) -> str:
    if not dialect.templates:
        raise BadInput(f"The dialect {dialect.name} has no templates.", fix="Write the playbook by hand.")
    if name is not None and name not in dialect.templates:
        raise BadInput(
            f"The dialect {dialect.name} has no template '{name}'.",
            fix=f"Choose one of {', '.join(dialect.templates)}.",
        )
    return dialect.template(name or next(iter(dialect.templates)))


def _filled(template: str, path: str) -> str:
    title = _title(path)
    quoted = json.dumps(title, ensure_ascii=False)  # valid YAML for any text
    return template.replace("%QUOTED_TITLE%", quoted).replace("%TITLE%", title).replace("%ID%", _id(path))


def _drafted(given: Given, path: str, dialect: Dialect) -> str:
    from cuebook.surfaces.cli import session
    from cuebook.surfaces.cli.commands import draft

    if os.path.exists(path):  # fail before the model is called
        raise BadInput(f"{path} already exists.", fix="Choose another name, or remove it first.")
    if not dialect.draft_prompt:
        known = ", ".join(one for one in _dialects() if registry.named(one).draft_prompt)
        raise BadInput(f"--from cannot draft playbooks in the dialect {dialect.name}.", fix=f"Choose one of {known}.")
    description = options.value_of("--from", given["description"])

    def check(text: str) -> list[Finding]:
        return registry.check(text, path, MachineSurroundings(path))

    return draft.draft(description, dialect.draft_prompt, check, session.wiring_of(given))


def _path(name: str, suffixes: tuple[str, ...]) -> str:
    stem = os.path.basename(name)
    if not stem.strip(". ") or not _NAME.fullmatch(name):
        raise BadInput(f"{name[:80]!a} is not a valid file name.", fix="Choose a name as in `cuebook new report`.")
    return name if stem.endswith(suffixes) else f"{name}{suffixes[0]}"


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0].removesuffix(".playbook")


def _id(path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", _stem(path).lower()).strip("-") or "workflow"


def _title(path: str) -> str:
    words = re.sub(r"[\s_-]+", " ", _stem(path)).strip()
    return (words[:1].upper() + words[1:]) or "Playbook"
