"""`cuebook policy preset`: shows the presets of a policy, and uses one in the user's policy file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from cuebook.config import Config
from cuebook.gate import policy as rules
from cuebook.gate.policy import Bundle, Layer, Rule, presets
from cuebook.service.service import Service
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal.output import say

_NO_PRESET = "none"


@command("preset", [click.Argument(["name"], required=False, type=click.Choice([*presets.ABOUT, _NO_PRESET]))])
def preset_command(given: Given) -> int:
    """Show the presets, or use one in your policy file.

    Without NAME, the output lists each preset with its rules. With NAME, your policy file takes them over, below its own
    rules; none removes them. `cuebook run --policy NAME` uses a preset for one run.
    """
    if given["name"] is None:
        say("\n".join(_preset_lines()))
        return 0
    path = _own_file(options.configuration(given))
    text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    changed = _with_preset(text, "" if given["name"] == _NO_PRESET else given["name"], path.suffix)
    rules.check_text(path, changed)

    async def act(service: Service) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}.new")
        written.write_text(changed, encoding="utf-8")
        written.replace(path)
        await service.record_act("policy.preset", str(path), details={"preset": given["name"]})
        chosen = "no preset" if given["name"] == _NO_PRESET else f"the preset {given['name']}"
        say(f"{path} now has {chosen}.")
        return 0

    return session.with_service(given, act)


def _preset_lines() -> Iterator[str]:
    for name, words in presets.ABOUT.items():
        layer = Layer("user", name, Bundle(preset=name), True)  # type: ignore[arg-type]
        yield f"{name}: {words}"
        yield from rule_lines(layer)
        yield f"  from_outside '{layer.from_outside}'"


def _own_file(config: Config) -> Path:
    found = rules.find(config_folder(config), Path.cwd())
    return next((one.path for one in found if one.whose == "user"), config_folder(config) / "policy.toml")


_PRESET_LINE = re.compile(r"^preset[ \t]*[=:].*\n?", re.MULTILINE)


def _with_preset(text: str, name: str, suffix: str) -> str:
    """The text of a policy file with this preset in its first line, above all tables; without one if it is empty."""
    rest = _PRESET_LINE.sub("", text)
    line = f'preset = "{name}"' if suffix == ".toml" else f"preset: {name}"
    return f"{line}\n{rest}" if name else rest


def rule_lines(layer: Layer) -> Iterator[str]:
    for domain in rules.TABLES:
        for decision in ("deny", "ask", "allow"):
            count = len(layer.patterns(domain, decision))
            yield from dict.fromkeys(_rule_line(layer.rule(domain, decision, number)) for number in range(count))
        default = layer.default(domain)
        if default is not None:
            yield _rule_line(default[1])


def _rule_line(rule: Rule) -> str:
    return f"  {rule.words}" + (f"  (line {rule.line})" if rule.line else "")


def config_folder(config: Config) -> Path:
    assert config.user_file is not None  # `load` always sets it, even if the file does not exist
    return config.user_file.parent
