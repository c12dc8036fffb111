"""Text from playbooks, replies and file names is shown on a terminal without acting on it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from cuebook.surfaces.cli.terminal.output import harmless, has_keys, in_json
from tests.support.command_line import SRC, CommandLine, finished
from tests.support.model_server import ModelServer
from tests.support.pseudo_terminal import TerminalSession

EVIL = "\x1b[2K\x1b[1A\x1b]0;pwn\x07\x9b31m\x7f\x08\u202egnp\u2066\u200f"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

HOSTILE = f"""\
# Ti{EVIL}tle

About {EVIL} this.

## SYSTEM

Be {EVIL} brief.

## INPUTS

- `kind` (string: gr{EVIL}een): Which {EVIL} tea
- `size` (enum: big{EVIL}, small): How {EVIL} much

## STEP 1: Wri{EVIL}te

Write about {{{{kind}}}} {EVIL} to {{{{nobody}}}}.

@output(r)

## STEP 2: As{EVIL}k

@elicit(confirm, "Send {EVIL} {{{{r}}}}?", default:"yes")

## STEP 3: Cho{EVIL}ose

@elicit(select, "Which {EVIL}?", "one{EVIL}", "two")
@output(which)

## STEP 4: Ca{EVIL}ll

@tool(builtin, "Gl{EVIL}ob", {{"pattern": "{EVIL}"}})

## STEP 5: Bra{EVIL}nch

```if r == "a{EVIL}"```
### STEP 5a: O{EVIL}ne
One {EVIL}.
```else```
### STEP 5b: T{EVIL}wo
@prompt(file:no{EVIL}.md)
```endif```

@tool({EVIL}

## ARTIFACTS

type: odd{EVIL}
"""

CASES = json.dumps(
    [
        {
            "name": f"fails {EVIL}",
            "inputs": {"size": "small"},
            "replies": [f"said {EVIL}"],
            "expect": {"status": "failed", "outputs": {"1": f"other {EVIL}"}},
        },
    ],
    ensure_ascii=True,
)


@pytest.fixture
def hostile(cli: CommandLine, server: ModelServer) -> CommandLine:
    cli.write("evil.md", HOSTILE)
    cli.write("evil.test.yaml", CASES)
    server.replies = [f"reply {EVIL}"] * 9
    return cli


def seen(cli: CommandLine, *args: str, code: int | None = None) -> str:
    """Everything that a terminal receives."""
    with TerminalSession(cli, *args, own=False) as terminal:
        ended = terminal.ended()
        assert code is None or ended == code, terminal.raw
        return terminal.raw.replace("\r\n", "\n")


def is_clean(text: str) -> bool:
    found = OBEYED.search(text)
    assert found is None, repr(text[max(0, found.start() - 60) : found.end() + 20])
    return True


READING = [
    ("parse evil.md", "pwn"),
    ("parse evil.md --json", "pwn"),
    ("summary evil.md", "pwn"),
    ("validate evil.md", "pwn"),
    ("validate evil.md --json", "pwn"),
    ("validate evil.md --sarif", "pwn"),
    ("explain evil.md", "pwn"),
    ("explain evil.md --json", "pwn"),
    ("explain evil.md --help", "pwn"),
    ("graph evil.md", "pwn"),
    ("convert evil.md --to json", "pwn"),
    ("convert evil.md --to playbook", "pwn"),
    ("run evil.md --size small --dry-run", "pwn"),
    ("run evil.md --size small --dry-run --json", "pwn"),
    ("run evil.md --help", "pwn"),
    ("test evil.md --no-color", "pwn"),
    ("test evil.md --json", "pwn"),
    ("new EVIL.md", "is not a valid file name"),
    ("parse noEVIL.md", "There is no file no"),
    ("parse EVIL", "There is no file "),
    ("run evil.md --kidEVIL x", "No such option"),
    ("run evil.md --size EVIL", "must be one of"),
    ("run evil.md --size small --break EVIL", "there is no step"),
    ("run evil.md --inputs EVIL.yaml", "There is no file"),
    ("EVIL", "There is no command"),
    ("show EVIL", "no run"),
    ("policy test command EVIL", "pwn"),
    ("policy test http EVIL", "is not a URL"),
    ("doctor --store EVIL", "pwn"),
]


@pytest.mark.parametrize(("line", "words"), READING, ids=[line for line, _ in READING])
def test_what_is_said_of_a_playbook_or_a_call_is_text_alone(hostile: CommandLine, line: str, words: str) -> None:
    if line.startswith(("show", "inbox")):
        hostile.call("run", "evil.md", "--size", "small", "--no-ask")
    args = [word.replace("EVIL", EVIL) for word in line.split()]
    said = seen(hostile, *args)
    assert is_clean(said)
    assert words in said, said


@pytest.fixture
def waiting(hostile: CommandLine) -> tuple[CommandLine, str, str]:
    runs = [hostile.call("run", "evil.md", "--size", "small", "--no-ask", "--json") for _ in range(2)]
    assert [ran.code for ran in runs] == [3, 3], runs[0].err
    assert is_clean(runs[0].err), "progress says it as well"
    return hostile, runs[0].object["run"], runs[1].object["run"]


def test_what_is_said_of_a_run_is_text_alone(waiting: tuple[CommandLine, str, str]) -> None:
    cli, run, other = waiting
    fork = cli.call("fork", other, "1", "--set", f"kind=bl{EVIL}ack", "--no-ask", "--json").object["run"]
    wait = cli.call("inbox", "--json").object[0]["wait"]
    for line in (
        "runs",
        "inbox",
        f"inbox {wait}",
        f"show {run}",
        f"show {run} --json",
        f"show {run} --state",
        f"show {run} --output",
        f"diff {run} {fork}",
        f"diff {run} {fork} --json",
        f"events {run}",
        f"events {run} --json",
        f"replay {run}",
        f"answer {run} maybe{EVIL}",
        f"cancel {other} --reason no{EVIL} --events",
        f"show {other}",
    ):
        said = seen(cli, *line.split(" "))
        assert is_clean(said), line
        assert said.strip(), line
    assert "Send" in seen(cli, "show", run)


def test_what_a_run_is_at_on_a_terminal_has_no_controls_but_our_own(waiting: tuple[CommandLine, str, str]) -> None:
    cli, run, _ = waiting
    for args in (
        ("run", "evil.md", "--size", "small", "--no-ask"),
        ("answer", run, "yes", "--no-ask"),
        ("test", "evil.md"),
    ):
        said = seen(cli, *args)
        ours = re.sub(r"\x1b\[[0-9;]*[mABGK]|\x1b\[\?25[hl]|\r", "", said)
        assert is_clean(ours), args
        assert "]0;pwn" in ours, args


def test_a_pipe_gets_text_alone_where_people_read_and_the_output_to_the_last_letter(
    cli: CommandLine, server: ModelServer
) -> None:
    server.replies = [f"reply {EVIL}\r\n\tend"]
    cli.write("one.md", f"# O{EVIL}ne\n\n## STEP 1: A{EVIL}\n\nSay.\n")
    ran = cli.call("run", "one.md")
    assert ran.code == 0
    assert is_clean(ran.err)
    run = re.search(r"run: (\w{12})", ran.err)
    assert run is not None
    assert is_clean(cli.call("events", run[1]).out)
    assert is_clean(cli.call("show", run[1]).out)
    process = cli.begin("show", run[1], "--output")
    assert process.stdout is not None
    with open(process.stdout.fileno(), "rb", closefd=False) as raw:  # a pipe of texts would change line ends
        assert raw.read().decode() == f"reply {EVIL}\r\n\tend\n"
    assert finished(process).code == 0
    again = cli.call("show", run[1], "--json").object
    assert again["output"] == f"reply {EVIL}\r\n\tend", "JSON says the same in other letters"


def test_letters_of_all_languages_stay() -> None:
    kept = "tab\tline\n\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u00a0\u200d\u2028 e\u0301 \U0001f469\u200d\U0001f680"
    assert harmless(kept) == kept
    assert not is_clean_of(EVIL)
    assert not has_keys(f"\u200f{kept}"), "whoever writes from right to left may type these"
    assert has_keys("\x1b[A")
    text = json.dumps({"a": EVIL}, ensure_ascii=False)
    assert json.loads(in_json(text)) == {"a": EVIL}
    assert OBEYED.search(in_json(text)) is None


def is_clean_of(text: str) -> bool:
    return harmless(text) == text


def test_no_module_of_the_command_line_writes_past_it() -> None:
    """JSON is written unchanged; the live view and the questions write directly, with `harmless`."""
    drawing = ("output.py", "rich_view.py", "ask.py")
    for path in sorted((SRC / "cuebook/surfaces/cli").rglob("*.py")):
        if path.name in drawing:
            continue
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            written = ast.unparse(call)
            if re.match(r"(sys\.stdout\.write|click\.echo|click\.secho|print)\(", written):
                assert re.search(r"json_line|in_json|harmless|\.source\(\)", written), f"{path.name}:{call.lineno}"


def test_the_suite_finds_what_it_looks_for(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        is_clean("a\x9bb")
