"""Hypothesis strategies for texts and definitions: pieces of playbooks in any order, and damaged real playbooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (ROOT / "tests/vectors/markdown", ROOT / "examples", ROOT.parent / "shared/data/markdown")

PIECES = [
    "# Title\n", "## STEP 1: A\n", "## STEP 2: B\n", "## STEP 2a: B\n", "## SYSTEM\n", "## INPUTS\n", "## ARTIFACTS\n",
    "## Output\n", "## Step 3\n", "## Inputs:\n", "##STEP 1: x\n", "### STEP 1a: C\n", "### STEP 2b: D\n", "### Step 1\n",
    "- `a` (string): x\n", "- `b` (enum: x, y)\n", "- `c` (number: 5x): z\n", "- `d` (enum)\n", "* c\n", "type: json\n",
    "type: {{a}}\n", "type: x\n", "```\n", "```json\n", "~~~\n", '```if a == "b"```\n', '```if b != "x"```\n',
    '```elif a == "b"```\n', '```elif x == ""```\n', "```else```\n", "```endif```\n", "```if a```\n", "``` else ```\n",
    "@output(x)\n", '@output(x: enum, "a", "b", extract:"f")\n', "@output(a: whatever)\n", "@output(a b)\n",
    '@elicit(confirm, "Go?", default:"no")\n', '@elicit(select, "Which {{a}}?", "a", "b")\n', "@elicit(input)\n",
    '@elicit(ask, "?")\n', "@elicit(select)\n", '@elicit(confirm, default:"x")\n', "@prompt(library:x)\n",
    "@prompt(file:../x)\n", "@prompt({{x}})\n", "@prompt(http://x)\n", "@prompt(mcp:x)\n", "@tool(a, b)\n",
    '@tool("a, b", c, {"x": "{{a}}", "y": {{b}}})\n', "@tool(a)\n", "@tool(a, b, {)\n", "  @output(y)\n", "@Output(x)\n",
    "Text @output(z)\n", "{{a}}", "{{x}} ", "{{ a }}", "{{a:string:d}}", "{{__elicit_step_1}}", "text\n", "text  \n",
    "  indented\n", "\n", "\n\n\n", "\ufeff", "\r", "\r\n", "\x0c", "\u2028", "\x00", "\x1c", "\u00a0", "\udc80", "é", '"',
    "`", "(", ")", ",", "\\", "---\n",
]  # fmt: skip

HEAD = "# T\n\n## INPUTS\n\n- `a` (string: 1): A\n- `b` (enum: x, y): B\n\n## STEP 1: One\n\n"


def documents() -> list[str]:
    """Every playbook in the project or next to it."""
    files = [path for folder in FOLDERS if folder.is_dir() for path in sorted(folder.rglob("*.md"))]
    return [path.read_bytes().decode() for path in files if path.name != "README.md"]


DOCUMENTS = documents()


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real playbook with lines removed, duplicated, moved or cut, and pieces inserted."""
    lines = draw(st.sampled_from(DOCUMENTS)).splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, len(lines)))
        match draw(st.sampled_from(["insert", "insert", "delete", "double", "cut", "move"])):
            case "insert":
                lines.insert(place, draw(st.sampled_from(PIECES)))
            case "delete":
                del lines[place : place + draw(st.integers(1, 4))]
            case "double":
                lines[place:place] = lines[place : place + draw(st.integers(1, 8))]
            case "cut" if place < len(lines):
                lines[place] = lines[place][: draw(st.integers(0, len(lines[place])))]
            case "move" if place < len(lines):
                lines.insert(draw(st.integers(0, len(lines))), lines.pop(place))
    return "".join(lines)


def _pieces(head: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(PIECES), max_size=40).map(lambda pieces: head + "".join(pieces))


TEXTS = st.one_of(st.text(), _pieces(""), _pieces(HEAD), damaged())
"""Any text: random characters, pieces of playbooks, and damaged playbooks."""


# --- definitions ------------------------------------------------------------------------------------------

_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\r\n")
_NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True)
_WORDS = st.from_regex(r"[a-zA-Z0-9_]{1,8}", fullmatch=True)


def _line(exclude: str = "") -> st.SearchStrategy[str]:
    characters = st.characters(codec="utf-8", exclude_characters="\r\n" + exclude)
    return st.text(characters, min_size=1, max_size=20).map(str.strip).filter(bool)


_PROSE = st.lists(
    st.text(_CHARACTERS, max_size=20).filter(lambda line: not line.lstrip().startswith(("#", "@", "`"))), max_size=5
).map(lambda lines: "\n".join(line.rstrip() for line in lines).strip())

_INPUTS = st.one_of(
    st.fixed_dictionaries(
        {"name": _NAMES, "type": st.sampled_from(["string", "text", "number", "boolean"]), "required": st.just(True)},
        optional={"description": _line()},
    ),
    st.fixed_dictionaries(
        {"name": _NAMES, "type": st.just("text"), "default": _line(")"), "required": st.just(False)},
        optional={"description": _line()},
    ),
    st.fixed_dictionaries({"name": _NAMES, "type": st.just("enum"), "options": st.lists(_line("),"), max_size=4)}),
)

_QUOTABLE = st.text(st.characters(codec="utf-8", exclude_characters='\r\n"'), max_size=12)
_OPTIONS = st.lists(_QUOTABLE, max_size=3)


def _select(draw_options: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    asked = {"type": st.just("select"), "prompt": _QUOTABLE, "options": st.just(draw_options)}
    return st.fixed_dictionaries(asked, optional={"default": st.sampled_from(draw_options)})


_ELICITATIONS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("input"), "prompt": _QUOTABLE}, optional={"default": st.text(_CHARACTERS, max_size=12)}
    ),
    st.fixed_dictionaries(
        {"type": st.just("confirm"), "prompt": _QUOTABLE}, optional={"default": st.sampled_from(["yes", "no"])}
    ),
    st.lists(_QUOTABLE, min_size=1, max_size=3).flatmap(_select),
)
_TOOLS = st.fixed_dictionaries(
    {"connection_name": _line("\"'"), "tool_name": _line("\"'")}, optional={"arguments": _line()}
)
_PROMPTS = st.one_of(
    _NAMES, _NAMES.map(lambda name: f"{{{{{name}}}}}"), _line().map(lambda name: f"library:{name}"), _line(":")
)
_DIRECTIVES: dict[str, st.SearchStrategy[Any]] = {
    "content": _PROSE,
    "prompt_ref": _PROMPTS.map(lambda name: {"prompt_id": name}),
    "elicitation": _ELICITATIONS,
    "tool_call": _TOOLS,
}


@st.composite
def _steps(draw: st.DrawFn, number: int, label: str, branches: bool) -> dict[str, Any]:
    step: dict[str, Any] = {"number": number, "label": label, "title": draw(_line())}
    step |= draw(st.fixed_dictionaries({}, optional=_DIRECTIVES))
    if draw(st.booleans()):
        step["output_var"] = draw(_WORDS)
        step["output_type"] = draw(st.sampled_from(["", "string", "text", "number", "boolean", "json", "enum"]))
        step["output_options"] = draw(_OPTIONS) if step["output_type"] == "enum" else None
        step["extract_field"] = draw(st.one_of(st.just(""), _WORDS))
    if branches and draw(st.booleans()):
        step["branches"] = [draw(_branches(number, position)) for position in range(draw(st.integers(1, 3)))]
    step["is_branching"] = "branches" in step
    return step


@st.composite
def _branches(draw: st.DrawFn, number: int, position: int) -> dict[str, Any]:
    condition = {"variable": draw(_WORDS), "operator": draw(st.sampled_from(["==", "!="])), "value": draw(_QUOTABLE)}
    letters = draw(st.lists(st.sampled_from("abcdefgh"), max_size=2))
    return {
        "condition": None if position and draw(st.booleans()) else condition,
        "steps": [draw(_steps(number, f"{number}{letter}", False)) for letter in letters],
    }


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    """Definitions that can be written, without line numbers."""
    numbers = draw(st.lists(st.integers(0, 99), min_size=1, max_size=4))
    return {
        "title": draw(_line()),
        "description": draw(_PROSE),
        "system_prompt": draw(_PROSE),
        "inputs": draw(st.lists(_INPUTS, max_size=4, unique_by=lambda declared: str(declared["name"]))),
        "steps": [draw(_steps(number, str(number), True)) for number in numbers],
        "artifact_type": draw(st.sampled_from(["", "markdown", "json", "{{form}}"])),
    }
