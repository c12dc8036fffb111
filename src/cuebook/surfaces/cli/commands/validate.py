"""Commands that read playbooks without running them: parse, validate, summary, convert."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cuebook.dialects import playbook as playbooks
from cuebook.dialects import registry
from cuebook.dialects.conversion import convert, unsupported
from cuebook.dialects.findings import Finding, log_of
from cuebook.kernel.errors import BadInput, with_fix
from cuebook.performers.files.neighbours import reader
from cuebook.service.playbooks.library import suffixes
from cuebook.surfaces.cli import completion, options
from cuebook.surfaces.cli.options import Given, NotText, command, read_playbook, read_stdin, read_text
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import hand_over, say
from cuebook.surfaces.display import counted
from cuebook.wiring.surroundings import MachineSurroundings

FILE = click.Argument(["file"], shell_complete=completion.any_file)
FILES = click.Argument(["files"], nargs=-1, required=True, shell_complete=completion.any_file)
_NOT_TEXT = "This is not UTF-8 text."
_GLANCE = 200_000
"""The number of bytes to read from a file to detect whether it is a playbook."""


def _name(path: str) -> str:
    return "stdin" if path == "-" else path


# --- parse ----------------------------------------------------------------------------------------------


@command("parse", [FILE, options.AS_JSON])
def parse_command(given: Given) -> int:
    """Print a playbook as Cuebook parses it: an outline, or with --json all of it.

    FILE is a playbook, or - for stdin. Playbooks in YAML or JSON are refused, because they are already structured data. The
    JSON object has `valid`, `definition`, `warnings` and `errors`, in the form of the format's conformance vectors if it has
    any. `cuebook validate` finds further problems.

    Exit codes: 0 it is a playbook, 2 it is not. `cuebook validate FILE --parse` does the same.
    """
    return _parsed(given)


def _parsed(given: Given) -> int:
    name = _name(given["file"])
    try:
        text = read_playbook(given["file"])
    except NotText as error:
        if not given["as_json"]:
            raise
        problem = {"line": error.line, "message": _NOT_TEXT}
        result: dict[str, Any] = {"valid": False, "definition": None, "warnings": [], "errors": [problem]}
    else:
        dialect = registry.presumed(text, name)
        if dialect.is_data:
            supporting = [one for one in registry.dialects() if not one.is_data]
            raise unsupported("parse", dialect, name, supporting)
        if not given["as_json"]:
            say("\n".join(dialect.parse_lines(dialect.parse(dialect.whole(text, name, reader(name)), name))))
            return 0
        result = dialect.parse_result(text, name, MachineSurroundings(name))
    sys.stdout.write(views.json_line(result))
    return 0 if result["valid"] else 2


# --- validate -------------------------------------------------------------------------------------------


@command(
    "validate",
    [
        FILES,
        click.Option(["--strict"], is_flag=True, help="Treat warnings as errors."),
        click.Option(["--quiet"], is_flag=True, help="Print only the findings that determine the exit code."),
        options.AS_JSON,
        click.Option(["--sarif", "as_sarif"], is_flag=True, help="Print a SARIF 2.1.0 log on stdout."),
        click.Option(["--parse"], is_flag=True, help="Print one playbook as Cuebook parses it, instead of findings."),
    ],
)
def validate_command(given: Given) -> int:
    """Find mistakes in playbooks.

    FILES are playbooks, - for stdin, or folders, which are searched for playbooks by suffix and content. Each finding is one
    line with location, severity, message, fix and a code that is stable across releases. Nothing is run.

    --parse prints an outline of one playbook, or with --json all of it: an object with `valid`, `definition`, `warnings`
    and `errors`.

    Exit codes: 0 no errors, 2 errors (with --strict, also warnings).
    """
    if given["parse"]:
        if len(given["files"]) != 1 or any(given[name] for name in ("strict", "quiet", "as_sarif")):
            raise BadInput("--parse accepts one file, and no option except --json.", fix="Omit the others.")
        return _parsed({**given, "file": given["files"][0]})
    if given["as_json"] and given["as_sarif"]:
        raise BadInput("--json and --sarif are mutually exclusive.", fix="Choose one.")
    found = {path: _findings(path) for path in _playbooks(given["files"])}
    decisive = {"error", "warning"} if given["strict"] else {"error"}
    bad = any(finding.severity in decisive for findings in found.values() for finding in findings)
    if given["as_sarif"]:
        sys.stdout.write(views.json_line(_sarif(found)))
    elif given["as_json"]:
        sys.stdout.write(views.json_line(_report(found, decisive)))
    else:
        shown = decisive if given["quiet"] else {"error", "warning", "note"}
        lines = [_finding_line(path, one) for path, ones in found.items() for one in ones if one.severity in shown]
        lines += [] if given["quiet"] else [_tally(found)]
        for line in lines:
            say(line)
    return 2 if bad else 0


def _playbooks(given: Sequence[str]) -> list[str]:
    """All playbooks without duplicates, including those in folders. A folder without playbooks is an error, because it is probably a typo."""
    found: dict[str, None] = {}
    for path in given:
        if path == "-" or not os.path.isdir(path):
            found[path] = None
            continue
        inside = [str(file) for file in _files(path) if _is_playbook(file)]
        if not inside:
            nouns = ", no ".join(one.noun for one in registry.dialects())
            words = f"There are no playbooks in {path}: no {nouns}."
            raise BadInput(words, fix="Pass individual files, or another folder.")
        found |= dict.fromkeys(inside)
    return list(found)


def _files(folder: str) -> Iterator[Path]:
    """All files below a folder in order, except hidden ones."""

    def refuse(error: OSError) -> None:  # an unreadable folder could also contain mistakes
        words = f"Cannot search {error.filename}: {error.strerror}."
        raise BadInput(words, fix="Check its permissions, or pass individual files.")

    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += (Path(place, name) for name in files if not name.startswith("."))
    return iter(sorted(found))


def _is_playbook(file: Path) -> bool:
    """Whether a file is a playbook. The suffix is not enough: Markdown, YAML and JSON have many other uses."""
    if not file.name.lower().endswith(suffixes()) or not file.is_file():
        return False
    try:
        with file.open("rb") as opened:
            text = opened.read(_GLANCE).decode("utf-8", "replace")
    except OSError:
        return True  # reading it later reports the error
    return any(one.claims(text, file.name) for one in registry.dialects())


def _findings(path: str) -> list[Finding]:
    try:
        return registry.check(read_playbook(path), _name(path), MachineSurroundings(_name(path), reads_store=True))
    except NotText as error:
        return [Finding("not_text", "error", _NOT_TEXT, error.line, 1, error.fix)]


def _finding_line(path: str, finding: Finding) -> str:
    places = [str(place) for place in (finding.line, finding.column) if place]
    words = " ".join(with_fix(finding.message, finding.fix).split())
    return f"{':'.join([_name(path), *places])}: {finding.severity}: {words} [{finding.code}]"


def _tally(found: dict[str, list[Finding]]) -> str:
    counts = _counts(found)
    parts = [counted(counts[kind], kind.removesuffix("s")) for kind in counts if counts[kind]]
    return f"{counted(len(found), 'playbook')}, {', '.join(parts) or 'no problems'}"


def _counts(found: dict[str, list[Finding]]) -> dict[str, int]:
    severities = [finding.severity for findings in found.values() for finding in findings]
    return {f"{kind}s": severities.count(kind) for kind in ("error", "warning", "note")}


def _report(found: dict[str, list[Finding]], decisive: set[str]) -> dict[str, Any]:
    files = [
        {
            "file": _name(path),
            "valid": not any(finding.severity in decisive for finding in findings),
            "findings": msgspec.to_builtins(findings),
        }
        for path, findings in found.items()
    ]
    return {"valid": all(file["valid"] for file in files), **_counts(found), "files": files}


def _sarif(found: dict[str, list[Finding]]) -> dict[str, Any]:
    """One SARIF log with one run, because SARIF readers reject several runs of the same tool."""
    codes = registry.codes()
    logs = [log_of(findings, _uri(path), codes) for path, findings in found.items()]
    runs = [log["runs"][0] for log in logs]
    rules = {rule["id"]: rule for run in runs for rule in run["tool"]["driver"]["rules"]}
    ids = sorted(rules)
    results = [{**one, "ruleIndex": ids.index(one["ruleId"])} for run in runs for one in run["results"]]
    driver = {**runs[0]["tool"]["driver"], "rules": [rules[id] for id in ids]}
    return {**logs[0], "runs": [{**runs[0], "tool": {"driver": driver}, "results": results}]}


def _uri(path: str) -> str:
    """A path relative to the working folder, as tools that show findings in code expect it."""
    if path == "-":
        return "stdin"
    inside = os.path.relpath(path)
    return Path(path).resolve().as_uri() if inside.startswith("..") else Path(inside).as_posix()


# --- summary --------------------------------------------------------------------------------------------


@command("summary", [FILE, options.AS_JSON])
def summary_command(given: Given) -> int:
    """Show what a playbook is about: title, inputs, steps and what it uses.

    FILE may be - for stdin. `cuebook explain FILE --summary` does the same.
    """
    return summarize(given)


def summarize(given: Given) -> int:
    name = _name(given["file"])
    playbook = playbooks.read(read_playbook(given["file"]), name, neighbour=reader(name))
    summary = playbook.dialect.summary(playbook.document)
    if given["as_json"]:
        sys.stdout.write(views.json_line(summary.fields(playbook.dialect.name)))
    else:
        say("\n".join(summary.lines()))
    return 0


# --- convert --------------------------------------------------------------------------------------------


@command(
    "convert",
    [
        FILE,
        click.Option(["--to"], type=click.Choice(["json", "playbook"]), required=True, help="The target format."),
        click.Option(["-o", "--output", "out"], metavar="OUT", help="The file to write; by default stdout."),
    ],
)
def convert_command(given: Given) -> int:
    """Convert a playbook to JSON, and back, without losing anything that affects a run.

    FILE is a playbook, its JSON as printed by `convert` or `parse --json`, or - for stdin. Converting a playbook to a
    playbook normalizes its text. JSON that no playbook can express is refused with the name of the field. A playbook
    whose dialect has no JSON form is refused as well.
    """
    name = _name(given["file"])
    text = read_stdin() if given["file"] == "-" else read_text(given["file"])
    converted = convert(text, name)
    if given["to"] == "json":
        written = json.dumps(converted.definition, ensure_ascii=False, indent=2) + "\n"
    else:
        written = converted.text
    if given["out"] is None:
        hand_over(written)
    else:
        write_text(given["out"], written)
    return 0


def write_text(path: str, text: str, *, replace: bool = True) -> None:
    """Writes a file. Raises `BadInput` with one line that says why it cannot."""
    data = text.encode()  # may fail, so do it before the file is truncated
    try:
        with open(path, "wb" if replace else "xb") as file:
            file.write(data)
    except FileExistsError:
        raise BadInput(f"{path} already exists.", fix="Choose another name, or remove it first.") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder.", fix="Pass the path of a file.") from None
    except FileNotFoundError:
        folder = os.path.dirname(path)
        raise BadInput(
            f"{path} cannot be written: there is no folder {folder}.",
            fix=f"Create it first: mkdir -p {shlex.quote(folder)}",
        ) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.", fix="Check the path.") from None
