"""Writes docs/reference/cli.md from the program's own help; with `--check`, reports whether it is up to date.

python scripts/make_cli_reference.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from cuebook.surfaces.cli import INSTEAD, cli, visible  # noqa: E402

TARGET = ROOT / "docs" / "reference" / "cli.md"
WIDTH = 100


def main() -> int:
    text = reference()
    if "--check" not in sys.argv[1:]:
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.relative_to(ROOT)} is out of date: run `python scripts/make_cli_reference.py`.")
    return 1


def reference() -> str:
    root = click.Context(cli, info_name="cuebook", terminal_width=WIDTH, **cli.context_settings)
    parts = [
        "# The command line\n\nGenerated from `cuebook --help` by `scripts/make_cli_reference.py`; change the program,"
        " not this page.\n",
        section("cuebook", cli.get_help(root)),
        section("cuebook --commands", cli.get_long_help(root)),
    ]
    for name in visible():
        command = cli.get_command(root, name)
        assert command is not None
        parts += sections(command, root, name)
    parts.append("## Older names\n\nThese names still work, but the help does not list them.\n")
    parts.append("\n".join(f"- `cuebook {old}`: `cuebook {new}`" for old, new in INSTEAD.items()) + "\n")
    return "\n".join(parts)


def sections(command: click.Command, parent: click.Context, name: str) -> list[str]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH)
    found = [section(context.command_path, command.get_help(context))]
    if isinstance(command, click.Group):
        for below in sorted(command.commands):
            found += sections(command.commands[below], context, below)
    return found


def section(path: str, help: str) -> str:
    return f"## {path}\n\n```text\n{help.rstrip()}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
