"""From the text of a Markdown playbook to its document, with every problem and its line.

The format is read line by line: a heading counts wherever it stands, inside a code fence too. What this version
cannot run is refused here, so that nothing of it ever reaches a model as if it were prose.
"""

from __future__ import annotations

import re

import msgspec

from cuebook.dialects.markdown.model import Book, DeclaredInput, Step
from cuebook.dialects.registry import InvalidPlaybook, Problem

SIZE_LIMIT = 200_000
"""Bytes of UTF-8."""

# ASCII classes, because the format's other readers have no others.
_TITLE = re.compile(r"#\s+(.+)", re.ASCII)
_SECTION = re.compile(r"##\s+(.+)", re.ASCII)
_STEP = re.compile(r"##\s+STEP\s+(\d{1,9}):\s+(.+)", re.ASCII)
_NEARLY_STEP = re.compile(r"#{1,6}\s*STEP\b\s*\d*\s*[:.\-]?.*", re.ASCII | re.IGNORECASE)
_SYSTEM = re.compile(r"##\s+SYSTEM(\s+PROMPT)?", re.ASCII | re.IGNORECASE)
_INPUTS = re.compile(r"##\s+INPUTS", re.ASCII | re.IGNORECASE)
_ARTIFACTS = re.compile(r"##\s+(ARTIFACTS|OUTPUT)", re.ASCII | re.IGNORECASE)
_SUBSTEP = re.compile(r"###\s+STEP\s+\d+[a-z]:\s+.+", re.ASCII)
_DIRECTIVE = re.compile(r"(@(?:output|elicit|prompt|tool))\(", re.ASCII)
_BRANCH = re.compile(r"```(if|elif|else|endif)\b.*```", re.ASCII)
_FENCE = re.compile(r"(```+|~~~+)[^`]*", re.ASCII)
_INPUT = re.compile(r"-\s+`([a-zA-Z][a-zA-Z0-9_]*)`\s+\(([^)]+)\)(?::\s*(.+))?", re.ASCII)

_TYPES = {
    "string": "string",
    "text": "text",
    "number": "number",
    "num": "number",
    "int": "number",
    "float": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "enum": "enum",
    "select": "enum",
    "choice": "enum",
}

_LINEAR = "This version runs SYSTEM, INPUTS and STEP sections in order: take the line out."


class Line(msgspec.Struct, frozen=True):
    number: int
    text: str
    """Without trailing blanks."""


class _Section(msgspec.Struct):
    heading: Line
    lines: list[Line]


def parse(text: str, name: str) -> Book:
    """The document; `InvalidPlaybook` with every problem that was found."""
    if len(text.encode("utf-8", "surrogatepass")) > SIZE_LIMIT:
        raise InvalidPlaybook(name, [Problem("Document exceeds 200KB size limit", fix="Split it.", code="F4")])
    if not text.strip("\ufeff \t\r\n\f\v"):
        raise InvalidPlaybook(name, [Problem("Document is empty", fix="Write a title and a step.", code="F5")])
    lines = _lines(text)
    preamble, sections = _sections(lines)
    reading = _Reading()
    title, description = _title(preamble)
    if title is None:
        hint = "Front matter is not read: write the title as a heading." if lines[0].text == "---" else ""
        problem = "No title found: document must contain a level-1 heading (# Title)"
        reading.errors.append(Problem(problem, fix=hint, code="F1"))
    for section in sections:
        reading.read(section)
    reading.warn_of_fences(lines)
    if not reading.steps and not reading.errors_about_steps:
        problem = "No steps found: document must contain at least one ## STEP heading"
        reading.errors.append(Problem(problem, fix=reading.nearly, code="F2"))
    if reading.errors:
        raise InvalidPlaybook(name, reading.errors)
    reading.check_numbers()
    return Book(
        title=title or "",
        steps=tuple(reading.steps),
        inputs=tuple(reading.inputs.values()),
        system=reading.system,
        description=description,
        warnings=tuple(sorted(reading.warnings, key=lambda problem: problem.line or 0)),
    )


def _lines(text: str) -> list[Line]:
    # Split on "\n" only: `splitlines` also splits on U+2028 and form feeds, and would shift the numbers.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return [Line(number, line.rstrip()) for number, line in enumerate(text.split("\n"), start=1)]


def _sections(lines: list[Line]) -> tuple[list[Line], list[_Section]]:
    preamble: list[Line] = []
    sections: list[_Section] = []
    for line in lines:
        if _SECTION.fullmatch(line.text):
            sections.append(_Section(line, []))
        elif sections:
            sections[-1].lines.append(line)
        else:
            preamble.append(line)
    return preamble, sections


def _title(preamble: list[Line]) -> tuple[str | None, str]:
    for position, line in enumerate(preamble):
        found = _TITLE.fullmatch(line.text)
        if found:
            return found[1].strip(), _content(preamble[position + 1 :])
    return None, ""


def _content(lines: list[Line]) -> str:
    return "\n".join(line.text for line in lines).strip()


class _Reading:
    """What has been found so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.inputs: dict[str, DeclaredInput] = {}
        self.system = ""
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self.errors_about_steps = False
        self.nearly = ""
        """What to say of a heading that only looks like a step, if there is no other."""

    def read(self, section: _Section) -> None:
        heading = section.heading
        step = _STEP.fullmatch(heading.text)
        if step:
            self._read_step(int(step[1]), step[2].strip(), section)
        elif _SYSTEM.fullmatch(heading.text):
            self.system = _content(section.lines)
        elif _INPUTS.fullmatch(heading.text):
            for line in section.lines:
                self._read_input(line)
        elif _ARTIFACTS.fullmatch(heading.text):
            self._refuse(heading.number, f"The section '{heading.text}'")
        elif _NEARLY_STEP.fullmatch(heading.text):
            self.nearly = f"Line {heading.number} looks like one: write it as '## STEP 1: Title'."
            message = f"'{heading.text}' is no step heading, and its section is not run."
            self.warnings.append(Problem(message, heading.number, "Write it as '## STEP 1: Title'.", "step_heading"))

    def _read_step(self, number: int, title: str, section: _Section) -> None:
        refused = False
        for line in section.lines:
            refused = self._refused(line) or refused
        self.errors_about_steps = self.errors_about_steps or refused
        if not refused:
            self.steps.append(Step(number, title, _content(section.lines), section.heading.number))

    def _refused(self, line: Line) -> bool:
        text = line.text.strip()
        directive = _DIRECTIVE.match(text)
        branch = _BRANCH.fullmatch(text)
        if directive:
            self._refuse(line.number, directive[1])
        elif branch:
            self._refuse(line.number, f"A branch (```{branch[1]}```)")
        elif _SUBSTEP.fullmatch(line.text):
            self._refuse(line.number, f"A sub-step ('{text}')")
        else:
            return False
        return True

    def _refuse(self, line: int, what: str) -> None:
        self.errors.append(Problem(f"{what} is not supported yet.", line, _LINEAR, "unsupported"))

    def _read_input(self, line: Line) -> None:
        text = line.text.strip()
        if not text.startswith(("-", "*")):
            return
        found = _INPUT.fullmatch(text)
        if not found:
            fix = "Write it as: - `name` (string): what it is."
            self.warnings.append(Problem(f'Malformed input line: "{text}"', line.number, fix, "W2"))
            return
        declared = _input(found[1], found[2], (found[3] or "").strip(), line.number)
        if declared.name in self.inputs:
            first = self.inputs[declared.name].line
            fix = f"Line {first} declares it already: rename one of them."
            self.errors.append(Problem(f'Duplicate input name: "{declared.name}"', line.number, fix, "F3"))
            return
        self.inputs[declared.name] = declared

    def check_numbers(self) -> None:
        expected = 1
        for step in self.steps:
            if step.number != expected:
                message = f"Non-sequential step number: expected {expected}, got {step.number}"
                self.warnings.append(Problem(message, step.line, code="W1"))
            expected = step.number + 1

    def warn_of_fences(self, lines: list[Line]) -> None:
        """Says where a section begins inside an open code fence: the format allows it, few authors mean it."""
        opened: Line | None = None
        for line in lines:
            if opened is not None and _SECTION.fullmatch(line.text):
                message = f"'{line.text}' begins a section although the code fence of line {opened.number} is open."
                self.warnings.append(Problem(message, line.number, "Indent the line to keep it as text.", "fence"))
                opened = None
                continue
            text = line.text.strip()
            if _FENCE.fullmatch(text):
                opened = None if opened is not None else line


def _input(name: str, spec: str, description: str, line: int) -> DeclaredInput:
    kind, _, rest = spec.partition(":")
    type_ = _TYPES.get(kind.strip().lower(), "string")
    if type_ == "enum":
        options = tuple(option for part in rest.split(",") if (option := part.strip()))
        return DeclaredInput(name, type_, options=options, description=description, line=line)
    default = rest.strip() or None
    return DeclaredInput(name, type_, default is None, default, description=description, line=line)
