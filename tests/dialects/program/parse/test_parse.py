"""From a program's text to its document: how each part is parsed or refused, with line and code."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects import registry
from cuebook.dialects.dialect import Input
from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.program.check.program import unfit
from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.model import ListingLine, Note, Param, ProgramText, Remote, Trigger
from cuebook.dialects.program.parse import parse, read
from cuebook.kernel.errors import BadInput
from tests.dialects.program.recordings import DATA, beside
from tests.dialects.program.samples import DESK, SOURCE, line_of, problem, problems, warned

PROGRAMS = sorted(DATA.glob("programs/**/*.pb"))

# --- programs that people wrote -----------------------------------------------------------------------------


@beside
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_published_program_loads_or_is_refused_for_the_files_it_misses(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    dialect = registry.detect(text, path.name)
    assert dialect.name == "program"
    if "!import" in text:
        with pytest.raises(InvalidPlaybook, match=r"main\.pb:5: The import of './shared/config\.txt' was not resolved"):
            dialect.parse(text, path.name)
        return
    program = dialect.parse(text, path.name)
    starts = [line for line in text.split("\n") if line.startswith("# ") and "<!--" not in line]
    assert len(program.agents) >= 1
    assert len(program.agents) <= len(starts)
    assert program.compiled is False
    assert {agent.kind for agent in program.agents.values() if agent.remote} <= {"mcp"}


@beside
def test_published_sources_keep_their_structure() -> None:
    def load(name: str) -> ProgramText:
        (path,) = DATA.glob(f"programs/**/{name}.pb")
        return parse(path.read_text(encoding="utf-8"), path.name)

    humans = load("hello_multi_human")
    assert [(agent.name, agent.kind) for agent in humans.agents.values()] == [
        ("Alice", "human"),
        ("Bob", "human"),
        ("Greeter", "ai"),
    ]
    game = load("two-player-game")
    assert list(game.agents["Player"].playbooks) == ["GamePlayingMeeting"]
    assert [one.name for one in load("cli_test_args").inputs] == ["arg1", "arg2"]


# --- a compiled program -------------------------------------------------------------------------------------


def test_agents_have_metadata_descriptions_and_python() -> None:
    program = parse(DESK, "folder/desk.pbasm")
    desk, garden = program.agents.values()
    assert (program.name, program.title, program.compiled) == ("desk", "The seed desk", True)
    assert program.frontmatter == {"title": "The seed desk", "version": 0.2}
    assert (desk.name, desk.kind, desk.line) == ("SeedDesk", "ai", line_of(DESK, "# SeedDesk"))
    assert desk.metadata == {"author": "Ana", "model": "small"}
    assert desk.description == "Sells seeds.\nAnswers in short words."
    assert desk.python[0].startswith("import math\n")
    assert (garden.name, garden.kind, garden.metadata) == ("Garden", "human", {"delivery_channel": "buffered"})
    assert program.warnings == ()


def test_a_playbook_has_signature_triggers_steps_and_notes() -> None:
    main = parse(DESK, "desk.pbasm").agents["SeedDesk"].playbooks["Main"]
    assert (main.kind, main.returns, main.description) == ("listing", "None", "Greets and sells.")
    assert main.params == (Param("name", "str"), Param("count", "int", 3, True))
    assert main.metadata == {"meeting": False}
    assert main.triggers == (
        Trigger("T1", "BGN", "At the beginning", line_of(DESK, "T1:BGN")),
        Trigger("T2", "EVT", "When the user asks for seeds", line_of(DESK, "T2:EVT")),
    )
    assert main.notes == (Note("N1", "Prices are in euros.", line_of(DESK, "N1 Prices")),)
    assert [line.number for line in main.steps] == ["01", "02", "02.01", "02.02", "03", "04", "05", "06"]
    assert main.steps[2] == ListingLine("02.01", "EXE", "$tries:int = $tries + 1", line_of(DESK, "02.01"))
    assert Listing.of(main).yields[0] is not None


def test_a_playbook_can_be_a_task_for_a_model() -> None:
    playbooks = parse(DESK, "desk.pbasm").agents["SeedDesk"].playbooks
    assert (playbooks["Sort"].kind, playbooks["Sort"].description) == ("react", "Sort the beds {$beds}.")
    assert playbooks["Sort"].params == (Param("beds", "List[str]", ["a, b", "c"], True),)
    assert (playbooks["Rhyme"].kind, playbooks["Rhyme"].description) == ("raw", "One line about {Joke()}.")


def test_what_is_published_may_be_called_by_others() -> None:
    playbooks = parse(DESK, "desk.pbasm").agents["SeedDesk"].playbooks
    assert [name for name, playbook in playbooks.items() if playbook.public] == ["Price", "Rhyme"]
    assert playbooks["Rhyme"].metadata["cli_entry"] is True


def test_the_inputs_are_the_parameters_of_the_first_playbooks() -> None:
    program = parse(DESK, "desk.pbasm")
    assert program.inputs == (Input("name"), Input("count", "number", False, "3"))
    dialect = registry.named("program")
    assert dialect.accept(program, {"name": "Ana"}) == {"name": "Ana", "count": 3}
    assert dialect.accept(program, {"name": "Ana", "count": "4"}) == {"name": "Ana", "count": 4}
    with pytest.raises(
        BadInput, match=r"Unknown input 'nme'.*'name'.*count must be of type int.*Missing: name \(str\)"
    ):
        dialect.accept(program, {"nme": "Ana", "count": "many"})


def test_an_input_without_a_type_has_that_of_its_default() -> None:
    program = parse("# A\n## P($n=10, $x)\n### Triggers\n- T1:BGN At the beginning\n", "a.pbasm")
    assert program.inputs == (Input("n", "number", False, "10"), Input("x"))
    dialect = registry.named("program")
    assert dialect.typed_inputs
    assert dialect.typed(program, "n", "12") == 12
    assert [dialect.typed(program, name, "12 ") for name in ("x", "n")] == ["12 ", 12]
    assert [dialect.takes(program, name) for name in ("x", "y")] == [True, False]


def test_a_listing_may_be_recognised_by_its_numbers_alone() -> None:
    text = "# A\n## P() -> None\n### Steps\n- 1:exe x\n  - 1.1:QUE Say(user,\n    Hello)\n  - an option\n- 2:RET\n"
    (playbook,) = parse(text, "stdin").agents["A"].playbooks.values()
    assert [(line.number, line.code, line.text) for line in playbook.steps] == [
        ("01", "EXE", "x"),
        ("01.01", "QUE", "Say(user,\nHello)\n- an option"),
        ("02", "RET", ""),
    ]
    assert warned(text) == [(7, "UNNUMBERED_STEP")]


def test_triggers_are_recognised_in_every_spelling() -> None:
    text = "# A\n## P\n### Triggers\n- 03:cnd $x > 3\n- At the beginning\n- T7:EVT a mail comes\n- When $y is set\n- When a user writes\n"
    (playbook,) = parse(text, "a.pbasm").agents["A"].playbooks.values()
    assert [(one.id, one.kind, one.text) for one in playbook.triggers] == [
        ("T3", "CND", "$x > 3"),
        ("T2", "BGN", "At the beginning"),
        ("T7", "EVT", "a mail comes"),
        ("T4", "CND", "When $y is set"),
        ("T5", "CND", "When a user writes"),
    ]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("At the beginning of the program", "BGN"),
        ("When programs starts", "BGN"),
        ("when the agent starts", "BGN"),
        ("When user asks for a refund", "EVT"),
        ("When a message arrives", "EVT"),
        ("When pigs fly", "CND"),
        ("When $asks > 3", "CND"),
    ],
)
def test_a_trigger_in_words_says_what_it_waits_for(words: str, kind: str) -> None:
    (playbook,) = parse(f"# A\n## P\n### Triggers\n- {words}\n", "a.pb").agents["A"].playbooks.values()
    assert [trigger.kind for trigger in playbook.triggers] == [kind]


@pytest.mark.parametrize(
    ("heading", "name", "params", "returns"),
    [
        ("Refund", "Refund", (), ""),
        ("Refund the user's order", "RefundTheUsersOrder", (), ""),
        ("refund_it(a, $b)", "refund_it", (Param("a"), Param("b")), ""),
        ("Refund it($order: str)", "RefundIt", (Param("order", "str"),), ""),
        ("Refund (if it was paid)", "RefundIfItWasPaid", (), ""),
        ("Refund() -> Dict[str, int]", "Refund", (), "Dict[str, int]"),
        ("Refund($a=null, $b: str = 'x, (y) = z') ->bool ##", "Refund",
         (Param("a", "", None, True), Param("b", "str", "x, (y) = z", True)), "bool"),
        ("2nd try", "_2ndTry", (), ""),
    ],
)  # fmt: skip
def test_a_heading_gives_name_parameters_and_result(
    heading: str, name: str, params: tuple[Param, ...], returns: str
) -> None:
    (playbook,) = parse(f"# A\n## {heading}\nDo it.\n", "a.pbasm").agents["A"].playbooks.values()
    assert (playbook.name, playbook.params, playbook.returns) == (name, params, returns)


@pytest.mark.parametrize("mark", ["public: Give($x) -> float", "public:Give($x) -> float"])
def test_an_old_heading_says_that_a_playbook_is_public(mark: str) -> None:
    playbook = parse(f"# A\n## {mark}\n### Steps\n- 01:RET\n", "a.pbasm").agents["A"].playbooks["Give"]
    assert playbook.public
    assert (playbook.params, playbook.returns) == ((Param("x"),), "float")


def test_code_in_a_playbook_is_an_example_unless_it_defines_one() -> None:
    text = "# A\n## P\nWrite as in\n```python\nx = (\n```\n## Q\nSay\n```python\n@playbook\ndef R(): ...\n```\n"
    agent = parse(text, "a.pbasm").agents["A"]
    assert list(agent.playbooks) == ["R", "P", "Q"]
    assert agent.playbooks["P"].description == "Write as in\n```python\nx = (\n```"
    assert agent.playbooks["Q"].description == "Say"


def test_comments_are_left_out_and_lines_keep_their_numbers() -> None:
    text = "# A\nOne <!-- two\n# Not\n-->three<!-- four --> <!-- is open\n## P\n### Steps\n- 01:RET\n"
    agent = parse(text, "a.pbasm").agents["A"]
    assert agent.description == "One three <!-- is open"
    assert agent.playbooks["P"].steps[0].line == 7


# --- a source that was not compiled -------------------------------------------------------------------------


def test_a_source_has_the_same_structure() -> None:
    program = parse(SOURCE, "help.pb")
    desk, backend = program.agents.values()
    assert program.compiled is False
    assert desk.name == "OrderHelpDesk"
    assert desk.metadata == {"framework": "calm", "specialization": ["orders", "returns"], "author": "Ana"}
    assert desk.description == "Helps with orders.\n\nSays: please and thank you."
    assert list(desk.playbooks) == ["CheckOrderId", "Main", "Wave", "ThinkAboutIt"]
    check = desk.playbooks["CheckOrderId"]
    assert check.public
    assert (check.description, check.params) == ("Looks at {$id}.", (Param("id"),))
    assert check.uncompiled == ("- If $id has 8 digits", "  - Return valid", "- Otherwise", "  - Return invalid")
    main = desk.playbooks["Main"]
    assert [(one.kind, one.text) for one in main.triggers] == [("BGN", "When the program starts")]
    assert [note.text for note in main.notes] == ["Be short"]
    assert (desk.playbooks["Wave"].kind, desk.playbooks["Wave"].uncompiled) == ("listing", ("- Say hello", "- Return"))
    assert desk.playbooks["ThinkAboutIt"].kind == "react"
    url = "http://127.0.0.1:9/mcp"
    assert (backend.kind, backend.remote) == ("mcp", Remote("mcp", url, transport="streamable-http"))


def test_an_uncompiled_source_is_parsed_but_not_run() -> None:
    first = unfit(parse(SOURCE, "help.pb"))[0]
    assert (first.line, first.code) == (11, "NOT_COMPILED")
    assert first.message == "The steps of 'CheckOrderId' are not compiled."


def test_a_source_of_python_alone_needs_no_compiler() -> None:
    text = '# Desk\n```python\n@playbook(triggers=["At the beginning"])\nasync def Main():\n    return 1\n```\n'
    program = parse(text, "desk.pb")
    assert program.compiled
    assert [playbook.name for _, playbook in program.beginning] == ["Main"]
    assert registry.named("program").accept(program, {}) == {}


def test_sections_at_the_wrong_level_are_accepted_with_a_warning() -> None:
    text = "# A\n## Main\n## Triggers\n- At the beginning\n## Steps\n- Wave\n### Actions\n- Bow\n"
    (playbook,) = parse(text, "a.pb").agents["A"].playbooks.values()
    assert (playbook.uncompiled, playbook.begins) == (("- Wave",), True)
    assert playbook.description == "### Actions\n- Bow"
    assert warned(text, "a.pb") == [(3, "SECTION_LEVEL"), (5, "SECTION_LEVEL"), (7, "UNKNOWN_SECTION")]


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [(None, "NO_AGENT")]),
        ("just words\n", [(None, "NO_AGENT")]),
        ("# \n", [(1, "NO_NAME")]),
        ("# A\n## ?\n", [(2, "NO_NAME")]),
        ("# A\n# A\n", [(2, "TWICE")]),
        ("# A\n## P\n## P()\n", [(3, "TWICE")]),
        ("# A\n## P\n### Triggers\n- T1:CND a\n- T1:CND b\n", [(5, "TWICE")]),
        ("# A\n```python\nx = 1\n", [(2, "OPEN_FENCE")]),
        ("---\ntitle: [\n---\n# A\n", [(2, "FRONTMATTER")]),
        ("---\ntitle: a\ntitle: b\n---\n# A\n", [(3, "FRONTMATTER")]),
        ("---\n- a\n---\n# A\n", [(2, "FRONTMATTER")]),
        ("# A\nmetadata:\n  a: 1\n  b: [\n---\n", [(4, "METADATA")]),
        ("# A\npublic: true\npublic: false\n", [(3, "METADATA")]),
        ("# A\n## P($a: int = )\n", [(2, "SIGNATURE")]),
        ("# A\n## P($a, $a)\n", [(2, "SIGNATURE")]),
        ("# A\n## P(*a)\n", [(2, "SIGNATURE")]),
        ("# A\n## P($a\n", [(2, "SIGNATURE")]),
        ("# A\n## P\nexecution_mode: fast\n", [(2, "EXECUTION_MODE")]),
        ("# A\n```public.json\n[\n{]\n```\n", [(4, "PUBLIC_JSON")]),
        ("# A\n```public.json\n{}\n```\n", [(2, "PUBLIC_JSON")]),
        ("# A\n!import ./a.md\n  !import b.md # two\n<!--\n!import c.md\n-->\n", [(2, "IMPORT"), (3, "IMPORT")]),
    ],
)
def test_every_problem_has_a_line_and_a_code(text: str, found: list[tuple[int | None, str]]) -> None:
    assert problems(text) == found
    assert all(one.fix for one in read(text, "desk.pbasm").errors)


def test_all_problems_are_reported_at_once() -> None:
    text = "# A\n## P(*)\n## P($a, $a)\n```python\n@playbook\ndef (\n```\n"
    with pytest.raises(InvalidPlaybook) as caught:
        parse(text, "desk.pbasm")
    assert [(one.line, one.code) for one in caught.value.problems] == [
        (2, "SIGNATURE"),
        (3, "SIGNATURE"),
        (3, "TWICE"),
        (6, "PYTHON"),
    ]
    assert str(caught.value).startswith("desk.pbasm:2: The parameters of 'P(*)' are invalid: '*' is not a parameter.")


def test_publishing_a_missing_playbook_is_a_warning() -> None:
    text = '# A\n```public.json\n[\n  {"name": "Q"}]\n```\n## P\nDo.\n'
    assert warned(text) == [(4, "PUBLIC_JSON")]


def test_text_before_the_first_agent_is_a_warning() -> None:
    assert warned("Compiled playbook content\n# A\nDo.\n") == [(1, "STRAY_TEXT")]


def test_a_text_that_is_too_large_is_refused() -> None:
    assert problem("# A\n" + "x" * 4_000_000).code == "TOO_LARGE"


_PIECES = st.sampled_from(
    ["# A", "## P($x: int = 3)", "## P(", "### Steps", "### Triggers", "- 01:QUE Say(", "  - x", "```python", "```",
     "```public.json", "[", "@playbook(triggers=", "def f(x=", "metadata:", "---", "  a: [", "public: true", "<!--", "-->",
     "remote:", "  type: mcp", "!import x", "- T1:BGN", "\x00", "\ufeff", "{$x}", "é", "\r"]
)  # fmt: skip


@given(st.lists(_PIECES | st.text(max_size=8), max_size=40).map("\n".join), st.sampled_from(["a.pb", "a.pbasm", "a"]))
def test_any_text_is_read_or_refused_with_its_problems(text: str, name: str) -> None:
    found = read(text, name)
    assert (found.program is None) == bool(found.errors)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(one.line is None or 1 <= one.line <= lines + 1 for one in (*found.errors, *found.warnings))
