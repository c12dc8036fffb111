"""Commands that read playbooks and run nothing: parse, validate, summary, convert."""

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

from cuebook.dialects.findings import Finding, log_of
from cuebook.dialects.graph import GRAPH
from cuebook.dialects.markdown.check import CODES
from cuebook.dialects.markdown.convert import from_json, result_object, to_json
from cuebook.dialects.markdown.parse import SIZE_LIMIT, Parsed, parse, read
from cuebook.dialects.markdown.sections import outline
from cuebook.dialects.pipeline import PIPELINE
from cuebook.dialects.pipeline import check as pipeline_check
from cuebook.dialects.program import PROGRAM
from cuebook.dialects.program.check import CODES as PROGRAM_CODES
from cuebook.dialects.program.detect import SUFFIXES as PROGRAMS
from cuebook.dialects.registry import UNKNOWN, InvalidPlaybook, Problem
from cuebook.kernel.errors import BadInput, told
from cuebook.surfaces.cli import completion, live, options
from cuebook.surfaces.cli.options import Given, NotText, command, read_playbook, read_stdin, read_text
from cuebook.surfaces.cli.plain import hand_over, say
from cuebook.surfaces.reading import markdown, pipelines, programs, workflows
from cuebook.surfaces.reading.findings import checked
from cuebook.surfaces.wording import counted

FILE = click.Argument(["file"], shell_complete=completion.any_file)
FILES = click.Argument(["files"], nargs=-1, required=True, shell_complete=completion.any_file)
SUFFIX = ".playbook.md"
_NOT_TEXT = "This is not UTF-8 text."


def _name(path: str) -> str:
    return "stdin" if path == "-" else path


# --- parse ----------------------------------------------------------------------------------------------


@command("parse", [FILE, options.AS_JSON])
def parse_command(given: Given) -> int:
    """Print a playbook as it is read: an outline, or with --json the whole of it.

    FILE is a Markdown playbook or a program; - is stdin. The JSON object has `valid`, `definition`, `warnings` and
    `errors`, of a Markdown playbook in the shape of the format's conformance vectors. What else may be wrong with a playbook is told by `cuebook validate`.

    Exit codes: 0 it is a playbook, 2 it is none.
    """
    try:
        text, name = read_playbook(given["file"]), _name(given["file"])
        if PROGRAM.recognises(text, name):
            return _parse_program(given, text, name)
        workflows.refuse(text, name, "parse")
        parsed = read(text)
    except NotText as error:
        if not given["as_json"]:
            raise
        parsed = Parsed(None, errors=(Problem(_NOT_TEXT, error.line, error.fix, "not_text"),))
    if given["as_json"]:
        sys.stdout.write(live.json_line(result_object(parsed)))
        return 0 if parsed.valid else 2
    if parsed.definition is None:
        raise InvalidPlaybook(_name(given["file"]), parsed.errors)
    say("\n".join(markdown.outline(parsed.definition)))
    return 0


def _parse_program(given: Given, text: str, name: str) -> int:
    if not given["as_json"]:
        program = programs.program_of(text, name)
        assert program is not None
        say("\n".join(programs.outline(program)))
        return 0
    found = programs.parsed_object(text, name)
    sys.stdout.write(live.json_line(found))
    return 0 if found["valid"] else 2


# --- validate -------------------------------------------------------------------------------------------


@command(
    "validate",
    [
        FILES,
        click.Option(["--strict"], is_flag=True, help="A warning counts as an error."),
        click.Option(["--quiet"], is_flag=True, help="Print what decides the exit code, and nothing else."),
        options.AS_JSON,
        click.Option(["--sarif", "as_sarif"], is_flag=True, help="Print a SARIF 2.1.0 log on stdout."),
    ],
)
def validate_command(given: Given) -> int:
    """Find the mistakes in playbooks.

    FILES are playbooks, - for stdin, or folders, in which all *.playbook.md are looked for, every other *.md that has a
    step, all *.yml, *.yaml and *.json that are workflow graphs or pipelines, and all programs, which are *.pbasm and
    *.pb. Each finding is a line: where, how bad, what, what to do, and its code, which stays the same from release to
    release. Nothing is run.

    Exit codes: 0 nothing is wrong, 2 there is an error (with --strict, also a warning).
    """
    if given["as_json"] and given["as_sarif"]:
        raise BadInput("--json and --sarif exclude each other.", fix="Choose one.")
    found = {path: _findings(path) for path in _playbooks(given["files"])}
    decisive = {"error", "warning"} if given["strict"] else {"error"}
    bad = any(finding.severity in decisive for findings in found.values() for finding in findings)
    if given["as_sarif"]:
        sys.stdout.write(live.json_line(_sarif(found)))
    elif given["as_json"]:
        sys.stdout.write(live.json_line(_report(found, decisive)))
    else:
        shown = decisive if given["quiet"] else {"error", "warning", "note"}
        lines = [_finding_line(path, one) for path, ones in found.items() for one in ones if one.severity in shown]
        lines += [] if given["quiet"] else [_tally(found)]
        for line in lines:
            say(line)
    return 2 if bad else 0


def _playbooks(given: Sequence[str]) -> list[str]:
    """Every file once, folders searched; a folder without any is more likely a mistake than fine."""
    found: dict[str, None] = {}
    for path in given:
        if path == "-" or not os.path.isdir(path):
            found[path] = None
            continue
        inside = [str(file) for file in _files(path) if _is_playbook(file)]
        if not inside:
            words = f"There is no playbook in {path}: no *{SUFFIX}, no other *.md that has a step, no workflow, pipeline or program."
            raise BadInput(words, fix="Name the files, or another folder.")
        found |= dict.fromkeys(inside)
    return list(found)


def _files(folder: str) -> Iterator[Path]:
    """Everything below a folder in order, hidden files aside."""

    def refuse(error: OSError) -> None:  # a folder that nobody can look into may hold mistakes, too
        words = f"{error.filename} cannot be searched: {error.strerror}."
        raise BadInput(words, fix="Check its permissions, or name the files.")

    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += (Path(place, name) for name in files if not name.startswith("."))
    return iter(sorted(found))


def _is_playbook(file: Path) -> bool:
    """Markdown, YAML and JSON have many other uses."""
    if file.name.endswith(".md"):
        return file.name.endswith(SUFFIX) or _has_steps(file)
    if file.suffix.lower() in PROGRAMS:
        return file.is_file()
    suffix = file.suffix.lower()
    if suffix not in (*workflows.SUFFIXES, ".json") or not file.is_file():
        return False
    text = _beginning(file)
    if suffix == ".json" and '"nodes"' not in text:  # much data has an id and a name, and is no broken workflow
        return PIPELINE.recognises(text, file.name)
    return any(one.recognises(text, file.name) for one in (GRAPH, PIPELINE))


def _beginning(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(SIZE_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""  # nobody knows what it is


def _has_steps(file: Path) -> bool:
    """Whether it looks like a playbook: a page that shows one in a code fence is none."""
    if not file.is_file():
        return False
    try:
        with file.open("rb") as opened:
            text = opened.read(SIZE_LIMIT).decode("utf-8", "replace")
    except OSError:
        return True  # nobody knows: reading it says what is wrong
    return any(section.kind == "step" for section in outline(text, fenced=True).sections)


def _findings(path: str) -> list[Finding]:
    try:
        return checked(read_playbook(path), _name(path))
    except NotText as error:
        return [Finding("not_text", "error", _NOT_TEXT, error.line, 1, error.fix)]


def _finding_line(path: str, finding: Finding) -> str:
    places = [str(place) for place in (finding.line, finding.column) if place]
    words = " ".join(told(finding.message, finding.fix).split())
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
    """One log with one run: readers of SARIF refuse several runs of the same tool."""
    codes = {**CODES, **pipeline_check.CODES, **PROGRAM_CODES, **workflows.CODES}
    codes[UNKNOWN.code] = ("error", "The file is no playbook.")
    logs = [log_of(findings, _uri(path), codes) for path, findings in found.items()]
    runs = [log["runs"][0] for log in logs]
    rules = {rule["id"]: rule for run in runs for rule in run["tool"]["driver"]["rules"]}
    ids = sorted(rules)
    results = [{**one, "ruleIndex": ids.index(one["ruleId"])} for run in runs for one in run["results"]]
    driver = {**runs[0]["tool"]["driver"], "rules": [rules[id] for id in ids]}
    return {**logs[0], "runs": [{**runs[0], "tool": {"driver": driver}, "results": results}]}


def _uri(path: str) -> str:
    """Relative to the working folder, which is what those who show findings beside code expect."""
    if path == "-":
        return "stdin"
    inside = os.path.relpath(path)
    return Path(path).resolve().as_uri() if inside.startswith("..") else Path(inside).as_posix()


# --- summary --------------------------------------------------------------------------------------------


@command("summary", [FILE, options.AS_JSON])
def summary_command(given: Given) -> int:
    """Say what a playbook is about: its title, inputs, steps and what it uses.

    FILE may be - for stdin. `cuebook info` is the same command.
    """
    text, name = read_playbook(given["file"]), _name(given["file"])
    program = programs.program_of(text, name)
    pipeline = pipelines.pipeline_of(text, name) if program is None else None
    workflow = workflows.workflow_of(text, name) if program is None and pipeline is None else None
    if program is not None:
        made, lines = programs.summary_of(program), programs.summary_lines(program)
    elif pipeline is not None:
        made, lines = pipelines.summary_of(pipeline), pipelines.summary_lines(pipeline)
    elif workflow is not None:
        made, lines = workflows.summary_of(workflow), workflows.summary_lines(workflow)
    else:
        book = parse(text, name)
        made, lines = markdown.summary_of(book), markdown.summary_lines(book)
    if given["as_json"]:
        sys.stdout.write(live.json_line(made))
    else:
        say("\n".join(lines))
    return 0


# --- convert --------------------------------------------------------------------------------------------


@command(
    "convert",
    [
        FILE,
        click.Option(["--to"], type=click.Choice(["json", "playbook"]), required=True, help="What to make of it."),
        click.Option(["-o", "--output", "out"], metavar="OUT", help="Write it here; otherwise on stdout."),
    ],
)
def convert_command(given: Given) -> int:
    """Turn a playbook into JSON, and back, without losing anything that a run depends on.

    FILE is a playbook, or its JSON as `convert` or `parse --json` prints it; - is stdin. What becomes of a playbook
    that is turned into a playbook is the same one, written in order. JSON that no playbook can say is refused with the
    field that cannot be written.
    """
    name = _name(given["file"])
    text = read_stdin() if given["file"] == "-" else read_text(given["file"])
    workflows.refuse(text, name, "convert")
    # A playbook may have a brace before its title.
    if text.lstrip("\ufeff \t\r\n").startswith("{") and not read(text).valid:
        text = from_json(_definition(text, name), name)
    definition = to_json(parse(text, name))
    if given["to"] == "json":
        written = json.dumps(definition, ensure_ascii=False, indent=2) + "\n"
    else:
        written = from_json(definition, name)
    if given["out"] is None:
        hand_over(written)
    else:
        write_text(given["out"], written)
    return 0


def _definition(text: str, name: str) -> Any:
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{name}:{error.lineno}: this is not JSON: {error.msg}.", fix="Correct it.") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{name}: this is not JSON that can be read.", fix="Correct it.") from None


def write_text(path: str, text: str, *, replace: bool = True) -> None:
    """Writes a file, or says in one line why not."""
    data = text.encode()  # before the file is emptied
    try:
        with open(path, "wb" if replace else "xb") as file:
            file.write(data)
    except FileExistsError:
        raise BadInput(f"{path} is there already.", fix="Choose another name, or remove it first.") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder.", fix="Give the path of a file.") from None
    except FileNotFoundError:
        folder = os.path.dirname(path)
        raise BadInput(
            f"{path} cannot be written: there is no folder {folder}.",
            fix=f"Make it first: mkdir -p {shlex.quote(folder)}",
        ) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.", fix="Check the path.") from None
