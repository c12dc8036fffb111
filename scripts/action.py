"""The GitHub Action's script: runs one playbook unattended, writes its artifact, and reports the result.

It reads INPUT_PLAYBOOK, INPUT_INPUTS, INPUT_ELICIT, INPUT_OUTPUT_PATH, INPUT_MODEL and INPUT_STRICT, and writes the
outputs `artifact-path`, `status`, `step-count` and `warnings` and a summary, whatever happens. See action.yml.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cuebook
from cuebook.formats.builder import SMALL
from cuebook.formats.suggestions import meant
from cuebook.formats.values import Malformed, Value
from cuebook.formats.yaml import read_yaml
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.journal import Entry

LONGEST_SHOWN = 60_000
"""Maximum number of characters shown of an artifact; the whole summary may have a megabyte."""

IN_SUMMARY = "See the job's summary."
NOBODY = "and nobody is there to give it. Allow the action in cuebook.policy.toml."

# Characters with a meaning in Markdown or HTML: links, images, mentions, emphasis, tables.
_MARKUP = re.compile(r"[!#$&*:<>@\\\[\]^_`{|}~]|(?<=[wW]{3})\.|^[-+=]|(?<=^\d)[.)]")


@dataclass
class Report:
    """The result, as in the outputs."""

    playbook: str = ""
    status: str = "failed"
    error: str = ""
    logged: str = ""
    """The message to log instead of the error, if the error may quote a model or a tool."""
    artifact_path: str = ""
    findings: list[str] = field(default_factory=list)
    """Warnings about the playbook."""
    warned: list[str] = field(default_factory=list)
    """Warnings from the run, which may quote a model."""
    result: cuebook.Result | None = None

    @property
    def warnings(self) -> list[str]:
        return [*self.findings, *self.warned]

    @property
    def completed(self) -> int:
        return self.result.steps_done if self.result is not None else 0


class Stopped(Exception):
    """The playbook was not run; the message says why."""


def main() -> int:
    report = Report(playbook=given("PLAYBOOK"))
    try:
        perform(report)
    except (Stopped, cuebook.CuebookError) as error:
        report.status, report.error = "failed", str(error)
    except Exception as error:  # the outputs must be written in any case
        report.status, report.error = "failed", f"Unexpected {type(error).__name__}: {error}"
    for finding in report.findings:
        command("warning", finding, report.playbook)
    if report.warned:
        command("warning", f"The run had {counted(report.warned)}. {IN_SUMMARY}", report.playbook)
    if report.error:
        command("error", report.logged or report.error, report.playbook)
    write_outputs(report)
    write("GITHUB_STEP_SUMMARY", summary(report))
    return 1 if report.status == "failed" else 0


def perform(report: Report) -> None:
    if not report.playbook:
        raise Stopped("No playbook is set. Set 'playbook' to the path of a playbook.")
    strict = flag("STRICT")
    book = cuebook.load(report.playbook)
    odd = [found for found in book.check() if found.severity != "note"]
    report.findings = [f"{place(book, found.line)}: {found.message} {found.fix}".rstrip() for found in odd]
    if strict and odd:
        raise Stopped(f"strict: the playbook has {counted(odd)}. Nothing was run.")
    inputs = {name: node.written for name, node in table("INPUTS").items()}
    answers = {step: text(node, step) for step, node in table("ELICIT").items()}
    check_steps(book, answers)
    report.result = cuebook.run(
        book,
        inputs,
        model=given("MODEL") or None,
        answers=answers,
        unattended=True,
        store=store(),
        on_event=show,
    )
    # The parser's warnings are already among the findings.
    told = [problem.message for problem in book.warnings]
    report.warned = [one for one in report.result.warnings if not any(message in one for message in told)]
    finish(report, report.result, strict)


def finish(report: Report, result: cuebook.Result, strict: bool) -> None:
    if result.artifact is not None:
        report.artifact_path = save(result.artifact, result.run)
    if not result.ok:
        report.error, report.logged = reason(result), reason_for_log(result)
    elif strict and result.warnings:
        report.error = f"strict: the run had {counted(result.warnings)}."
    else:
        report.status = "ok" if result.artifact is not None else "skipped"


def reason(result: cuebook.Result) -> str:
    """Why a run did not complete; in an unattended run, a wait is a failure."""
    waits = "; ".join(f"step {wait.step}: {wait.prompt}" for wait in result.waits)
    if result.status == "awaiting_approval":
        return f"The run needs approval ({waits}), {NOBODY}"
    return result.error or f"The run is {result.status.replace('_', ' ')}{f' ({waits})' if waits else ''}."


def reason_for_log(result: cuebook.Result) -> str:
    """The same reason without quotations, since an error or a question may quote a model."""
    step = next((one.label for one in result.steps if one.status not in ("completed", "skipped")), "")
    where = f" at step {step}" if step else ""
    if result.status == "awaiting_approval":
        return f"The run needs approval{where}, {NOBODY} {IN_SUMMARY}"
    why = f" ({result.reason})" if result.reason else ""
    return f"The run is {result.status.replace('_', ' ')}{where}{why}. {IN_SUMMARY}"


# --- inputs -------------------------------------------------------------------------------------------------


def given(name: str) -> str:
    return os.environ.get(f"INPUT_{name}", "").strip()


def flag(name: str) -> bool:
    said = given(name).lower()
    if said not in ("", "true", "false"):
        raise Stopped(f"{name.lower()}: expected 'true' or 'false', got '{said}'.")
    return said == "true"


def table(name: str) -> Mapping[str, Value]:
    """A YAML or JSON table."""
    where = name.lower()
    try:
        found = read_yaml(os.environ.get(f"INPUT_{name}", ""), SMALL)
    except Malformed as error:
        raise error.in_file(where) from None
    if found.kind not in ("map", "null"):
        raise Stopped(f"{where}:{found.line}: expected a table of names and values. Write one 'name: value' per line.")
    return found.fields


def text(value: Value, step: str) -> str:
    if not value.is_scalar:
        raise Stopped(f"elicit:{value.line}: the answer for step {step} must be a string.")
    return value.text


def check_steps(book: cuebook.Playbook, answers: Mapping[str, str]) -> None:
    for step in answers:
        if step not in book.labels:
            raise Stopped(f"elicit: the playbook has no step {step}. {meant(step, book.labels)}")


def store() -> Path | None:
    temporary = os.environ.get("RUNNER_TEMP", "")
    return Path(temporary) / "cuebook-runs.db" if temporary else None


# --- outputs ------------------------------------------------------------------------------------------------


def save(artifact: cuebook.Artifact, run: str) -> str:
    """If the path ends in / or is a folder, the file is named after the run."""
    wanted = given("OUTPUT_PATH") or "out/"
    place = Path(wanted)
    if wanted.endswith("/") or place.is_dir():
        place = place / f"{run}{artifact.suffix}"
    try:
        return str(artifact.save(place))
    except OSError as error:
        raise Stopped(f"output-path: {place} cannot be written: {error.strerror}.") from None


def write_outputs(report: Report) -> None:
    outputs = {
        "artifact-path": report.artifact_path,
        "status": report.status,
        "step-count": str(report.completed),
        "warnings": "\n".join(one_line(warning) for warning in report.warnings),
    }
    lines = []
    for name, content in outputs.items():
        # A random delimiter keeps a model's words from becoming separate outputs.
        mark = f"end_{secrets.token_hex(16)}"
        lines += [f"{name}<<{mark}", content, mark]
    write("GITHUB_OUTPUT", "\n".join(lines) + "\n")


def write(variable: str, content: str) -> None:
    path = os.environ.get(variable, "")
    if not path:
        sys.stdout.write(content if variable == "GITHUB_STEP_SUMMARY" else "")
        return
    with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(content)


def summary(report: Report) -> str:
    result = report.result
    parts = [f"## {cell(report.playbook or 'Cuebook')}: {report.status}"]
    if report.error:
        parts.append(quoted(report.error))
    if result is not None:
        rows = [f"| {cell(s.label)} | {cell(s.title)} | {s.status} | {cell(s.reason)} |" for s in result.steps]
        parts.append("\n".join(["| step | title | status | reason |", "|---|---|---|---|", *rows]))
        parts.append(
            f"{result.tokens:,} tokens, cost {money(result.cost)}, model {cell(result.model)}, run `{result.run}`"
        )
    if report.warnings:
        parts.append("\n".join(["Warnings:", "", *(f"- {cell(warning)}" for warning in report.warnings)]))
    if result is not None and result.artifact is not None:
        parts.append(shown(result.artifact, report.artifact_path))
    return "\n\n".join(parts) + "\n"


def shown(artifact: cuebook.Artifact, path: str) -> str:
    content = artifact.content[:LONGEST_SHOWN]
    cut = (
        f"\n\n[{len(artifact.content) - len(content):,} more characters are in the file]"
        if content != artifact.content
        else ""
    )
    fence = "````"
    while fence in content:
        fence += "`"
    title = f"Artifact{f' ({cell(artifact.type)})' if artifact.type else ''}: {cell(path)}"
    return f"<details><summary>{title}</summary>\n\n{fence}text\n{content}\n{fence}{cut}\n\n</details>"


def money(cost: float | None) -> str:
    if cost is None:
        return "unknown"
    return f"${cost:.4f}" if cost == 0 or cost >= 0.01 else f"${cost:.6f}"


def show(event: Any) -> None:
    """Logs progress: only labels and titles, because a model's words in the log could be read as a command."""
    if not isinstance(event, Entry):
        return
    match event.event:
        case StepStarted(label=label, title=title):
            print(f"step {one_line(label)}: {one_line(title)}", flush=True)
        case StepFinished(status=status) if status != "completed":
            print(f"  {status}", flush=True)


def command(kind: str, message: str, file: str) -> None:
    """Prints a line that the runner shows next to the file."""
    escaped = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    where = file.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    print(f"::{kind}{f' file={where}' if where else ''}::{escaped}", flush=True)


def place(book: cuebook.Playbook, line: int | None) -> str:
    return f"{book.path}:{line}" if line else str(book.path)


def cell(words: str) -> str:
    """Escapes text so that it is safe anywhere in the summary, even in a table."""
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", one_line(words))


def quoted(words: str) -> str:
    return "\n".join(f"> {cell(line)}" for line in words.split("\n"))


def one_line(words: str) -> str:
    return " ".join(words.split())


def counted(warnings: Sequence[object]) -> str:
    return f"{len(warnings)} warning{'s' if len(warnings) > 1 else ''}"


if __name__ == "__main__":
    sys.exit(main())
