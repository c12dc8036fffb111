"""Parsing a workflow: what each field becomes, and what is refused, with its line and code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects import registry
from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.graph.model import (
    Edge,
    Evaluator,
    InlineSkill,
    Match,
    McpServer,
    Requires,
    Retry,
    Rule,
    Source,
    Sources,
)
from cuebook.dialects.graph.parse import parse, read
from tests.dialects.graph.samples import (
    DATA,
    FULL,
    MINIMAL,
    OWN,
    PUBLISHED,
    beside,
    codes,
    edited,
    line_of,
    loaded,
    plain,
    problems,
    refusal,
)

# --- valid workflows----------------------------------------------------------------------------------------


@beside
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_published_workflow_loads_without_a_warning(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    dialect = registry.detect(text, path.name)
    assert dialect.name == "graph"
    assert dialect.parse(text, path.name).warnings == ()


@beside
def test_a_published_stub_is_refused_for_what_it_lacks() -> None:
    text = (DATA / "invalid/wf.yml").read_text(encoding="utf-8")
    with pytest.raises(InvalidPlaybook) as caught:
        registry.detect(text, "wf.yml").parse(text, "wf.yml")
    assert [(one.line, one.code) for one in caught.value.problems] == [(1, "SCHEMA")] * 3
    assert str(caught.value).splitlines()[0] == "wf.yml:1: 'entry' is missing in the workflow. Add it. [SCHEMA]"


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_an_example_of_ours_loads_without_a_warning(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert registry.detect(text, path.name).parse(text, path.name).warnings == ()


def test_there_are_examples() -> None:
    assert len(OWN) >= 2


def test_a_minimal_workflow() -> None:
    tea = parse(MINIMAL, "tea.yml")
    assert (tea.id, tea.title, tea.entry, tea.edges) == ("tea", "Tea", "brew", ())
    assert tea.nodes["brew"].instruction == Source("inline", "Brew a cup of tea.", line=7)
    assert (tea.workflow_type, tea.judge_budget, tea.declared, tea.inputs) == ("generic", 50, None, ())
    assert [(step.label, step.title) for step in tea.plan] == [("brew", "Brew")]


def test_every_field_of_a_workflow() -> None:
    book = parse(FULL, "full.yml")
    assert (book.workflow_type, book.model, book.judge_model, book.judge_budget) == (
        "monitor", "provider/strong", "provider/judge", 4,
    )  # fmt: skip
    assert [(one.kind, one.value, one.type) for one in (*book.rules, *book.context)] == [
        ("inline", "Be short.", ""),
        ("file", "./rules.md", ""),
        ("url", "https://example.com/context.md", ""),
        ("inline", "./not a file", ""),
        ("file", "notes/context.md", ""),
        ("url", "https://example.com/more.md", "fetch"),
    ]
    assert [(one.name, one.type, one.required, one.default, one.enum) for one in book.declared or ()] == [
        ("topic", "string", True, None, ()),
        ("depth", "number", False, 2, (1, 2, 3)),
        ("loud", "boolean", False, False, ()),
        ("labels", "string[]", False, ["a", "b"], (["a", "b"], ["c"])),
    ]
    assert [(one.name, one.default, one.options) for one in book.inputs][1:] == [
        ("depth", "2", ("1", "2", "3")), ("loud", "false", ()), ("labels", '["a","b"]', ('["a","b"]', '["c"]')),
    ]  # fmt: skip
    assert book.edges == (
        Edge("look", "judge-it", index=0, line=line_of(FULL, "from: look")),
        Edge("judge-it", "again", "it is not good enough", 3, 1, line_of(FULL, "from: judge-it, to: again, when")),
        Edge("judge-it", "tell", "", None, 2, line_of(FULL, "to: tell")),
        Edge("again", "look", "", 2, 3, line_of(FULL, "from: again")),
    )


def test_every_field_of_a_skill() -> None:
    skills = parse(FULL, "full.yml").skills
    assert skills["house"] == InlineSkill(
        "house", "House style", "How we write", "Write as we do.", line=line_of(FULL, "house:")
    )
    assert skills["search"].mcp == McpServer(
        "stdio", "search-server", ("--fast",), env={"SEARCH_KEY": "A key for the search"}
    )
    assert skills["remote"].mcp == McpServer("http", url="https://mcp.example.com", headers={"X-Team": "ours"})


def test_every_field_of_a_node() -> None:
    look = parse(FULL, "full.yml").nodes["look"]
    assert look.skills == ("house", "search", "github")
    assert (look.max_turns, look.model, look.fail_soft) == (12, "provider/small", True)
    assert (look.disallowed_tools, look.allow, look.deny) == (("Bash",), ("search_find",), ("search_delete",))
    assert [one.value for one in look.rules.sources] == ["Look twice."]
    assert look.context == Sources(
        (Source("inline", "Nothing else counts.", line=look.context.sources[0].line),), only=True
    )
    assert look.output is not None
    assert look.output["required"] == ["found"]
    assert look.line == line_of(FULL, "  look:")


def test_every_field_of_what_is_checked() -> None:
    nodes = parse(FULL, "full.yml").nodes
    judge = nodes["judge-it"]
    assert judge.instruction.kind == "inline"
    assert judge.judge_model == "provider/other-judge"
    assert judge.requires == Requires(("look.found",), (Match("look.score", "equals", 1),), "skip")
    value, function, said = judge.eval
    assert value.rule == Rule(
        output_required=("all:found[*].id",),
        output_matches=(
            Match("found", "equals", []),
            Match("status", "in", ["ok", 1, None]),
            Match("text", "matches", "^ok (?<n>[0-9]+)$"),
        ),
    )
    assert function.rule == Rule(("a",), ("b",), ("c",))
    assert said == Evaluator(
        "sounds_right", "judge", rubric="Does it sound right?", pass_when="yes", model="provider/judge", line=said.line
    )
    retries = [nodes[id].retry for id in ("look", "judge-it", "again", "tell")]
    assert retries == [
        None,
        Retry(2, "reflect", "Why did it fail?"),
        Retry(1, "static", "Try once more."),
        Retry(1, "auto"),
    ]
    assert loaded(("nodes.brew.retry", {"max": 3})).nodes["brew"].retry == Retry(3)


def test_json_is_read_as_yaml_is() -> None:
    given = plain(FULL)
    from_json = parse(json.dumps(given), "full.json")
    assert from_json.nodes.keys() == parse(FULL, "full.yml").nodes.keys()
    assert parse(json.dumps(given, indent=2), "full.json").nodes["look"].line > 20
    assert parse(json.dumps(given), "full.yml") == from_json


def test_a_flow_mapping_that_is_not_json_is_yaml() -> None:
    text = "{id: a, name: A, entry: b, nodes: {b: {name: B, instruction: C}}, edges: []}"
    assert parse(text, "a.yml").nodes["b"].name == "B"
    assert refusal(text, "a.json")[0].code == "PARSE"


def test_unknown_top_level_keys_are_allowed_and_likely_typos_are_noted() -> None:
    parsed = read(MINIMAL + "author: me\nx_other: {a: 1}\nrule: []\nx-cuebook: {}\n", "a.yml")
    assert parsed.workflow is not None
    assert [(one.line, one.message, one.fix) for one in parsed.notes] == [
        (11, "Unknown key 'rule' is ignored.", "Did you mean 'rules'?"),
        (12, "Unknown key 'x-cuebook' is ignored.", "Did you mean 'x_cuebook'?"),
    ]


def test_yes_is_a_word() -> None:
    judge = {"name": "j", "kind": "judge", "rubric": "Is it?"}
    text = MINIMAL.replace("tea.\n", "tea.\n    eval: [{name: j, kind: judge, rubric: Good?, pass_when: yes}]\n")
    assert parse(text, "a.yml").nodes["brew"].eval[0].pass_when == "yes"
    assert loaded(("nodes.brew.eval", [judge])).nodes["brew"].eval[0].pass_when == "yes"


def test_an_empty_condition_is_ignored_and_an_instruction_with_a_slash_is_a_file() -> None:
    book = loaded(
        ("nodes.pour", {"name": "Pour", "instruction": "/etc/pour.md"}),
        ("edges.0", {"from": "brew", "to": "pour", "when": ""}),
    )
    assert book.edges[0].when == ""
    assert book.nodes["pour"].instruction.kind == "file"


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert loaded(("nodes.brew.max_turns", 3.0)).nodes["brew"].max_turns == 3


# --- invalid workflows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["id", "name", "entry", "nodes", "edges"])
def test_a_missing_required_field_is_reported(name: str) -> None:
    found = problems((name, ...))
    assert f"'{name}' is missing in the workflow." in [one.message for one in found]


NODE = "nodes.brew"
EVAL = {"name": "e", "kind": "value", "rule": {"output_required": ["a"]}}
JUDGE = {"name": "e", "kind": "judge", "rubric": "Good?"}
SKILL = {"instruction": "Do."}


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("id", "", "id must not be empty."),
        ("id", 5, "id must be a string, not '5'."),
        ("name", None, "name must be a string, not nothing."),
        ("description", [], "description must be a string, not a list."),
        ("nodes", [], "nodes must be a table of names and values, not a list."),
        ("edges", {}, "edges must be a list, not a table."),
        ("workflow_type", "review", "workflow_type cannot be 'review'."),
        ("judge_budget", -1, "judge_budget must be a whole number of at least 0, not '-1'."),
        ("judge_budget", 1.5, "judge_budget must be a whole number"),
        ("judge_budget", True, "judge_budget must be a whole number"),
        ("model", "", "model must not be empty."),
        ("rules", "Be short.", "rules must be a list"),
        ("rules", [""], "rules[0] must not be empty."),
        ("rules", [{"file": "a", "inline": "b"}], "rules[0]: A tagged source must have exactly one of inline, file and url"),
        ("rules", [{"file": ""}], "rules[0]: The file of a source must be a non-empty string."),
        ("rules", [{"text": "a"}], "rules[0]: A tagged source must have exactly one of"),
        ("verify", {}, "'verify' was renamed to 'eval' in version 0.2 of the format."),
        (NODE, "Brew.", "nodes.brew must be a table of names and values, not 'Brew.'."),
        (f"{NODE}.name", ..., "'name' is missing in nodes.brew."),
        (f"{NODE}.instruction", ..., "'instruction' is missing in nodes.brew."),
        (f"{NODE}.verify", {"any_tool_called": ["a"]}, "nodes.brew: 'verify' was renamed to 'eval'"),
        (f"{NODE}.instructions", "x", "Unknown key 'instructions' in nodes.brew."),
        (f"{NODE}.max_turns", 0, "nodes.brew.max_turns must be a whole number of at least 1, not '0'."),
        (f"{NODE}.max_turns", "3", "nodes.brew.max_turns must be a whole number"),
        (f"{NODE}.output", True, "nodes.brew.output must be a table"),
        (f"{NODE}.fail_soft", "yes", "nodes.brew.fail_soft must be true or false, not 'yes'."),
        (f"{NODE}.skills", [1], "nodes.brew.skills[0] must be a string"),
        (f"{NODE}.disallowed_tools", [""], "nodes.brew.disallowed_tools[0] must not be empty."),
        (f"{NODE}.tools", {}, "nodes.brew.tools has neither 'allow' nor 'deny'."),
        (f"{NODE}.tools", {"allow": []}, "nodes.brew.tools.allow must not be empty."),
        (f"{NODE}.tools", {"allow": ["a"], "only": []}, "Unknown key 'only' in nodes.brew.tools."),
        (f"{NODE}.context", {"only": True}, "'sources' is missing in nodes.brew.context."),
        (f"{NODE}.context", {"sources": [], "only": "yes"}, "nodes.brew.context.only must be true or false"),
        (f"{NODE}.requires", {"on_fail": "skip"}, "has neither 'output_required' nor 'output_matches'."),
        (f"{NODE}.requires", {"output_required": []}, "output_required must not be empty."),
        (f"{NODE}.requires", {"output_required": ["a"], "on_fail": "stop"}, "on_fail cannot be 'stop'."),
        (f"{NODE}.requires", {"output_matches": [{"path": "a"}]}, "exactly one of equals, in and matches."),
        (f"{NODE}.requires", {"output_matches": [{"path": "a", "in": [1], "equals": 1}]}, "exactly one of"),
        (f"{NODE}.requires", {"output_matches": [{"equals": 1}]}, "'path' is missing"),
        (f"{NODE}.requires", {"output_matches": [{"path": "a", "in": "b"}]}, ".in must be a list"),
        (f"{NODE}.requires", {"output_matches": [{"path": "a", "matches": ""}]}, ".matches must not be empty."),
        (f"{NODE}.retry", {}, "'max' is missing in nodes.brew.retry."),
        (f"{NODE}.retry", {"max": 0}, "retry.max must be a whole number of at least 1"),
        (f"{NODE}.retry", {"max": 1, "instruction": ""}, "retry.instruction must not be empty."),
        (f"{NODE}.retry", {"max": 1, "instruction": {}}, "have either 'auto' or 'reflect'."),
        (f"{NODE}.retry", {"max": 1, "instruction": {"auto": False}}, "auto can only be true."),
        (f"{NODE}.retry", {"max": 1, "instruction": {"auto": True, "reflect": "x"}}, "have either"),
        (f"{NODE}.eval", [], "nodes.brew.eval must not be empty."),
        (f"{NODE}.eval", [EVAL | {"kind": "values"}], "nodes.brew.eval[0].kind cannot be 'values'."),
        (f"{NODE}.eval", [{"kind": "judge", "rubric": "x"}], "'name' is missing in nodes.brew.eval[0]."),
        (f"{NODE}.eval", [{"name": "e", "kind": "value"}], "'rule' is missing in nodes.brew.eval[0]."),
        (f"{NODE}.eval", [{"name": "e", "kind": "judge"}], "'rubric' is missing in nodes.brew.eval[0]."),
        (f"{NODE}.eval", [EVAL | {"rubric": "x"}], "of kind 'value' cannot have 'rubric'."),
        (f"{NODE}.eval", [EVAL | {"pass_when": "yes"}], "of kind 'value' cannot have 'pass_when'."),
        (f"{NODE}.eval", [JUDGE | {"rule": {"output_required": ["a"]}}], "of kind 'judge' cannot have 'rule'."),
        (f"{NODE}.eval", [EVAL | {"rule": {}}], "nodes.brew.eval[0].rule must not be empty."),
        (f"{NODE}.eval", [EVAL | {"rule": {"output_needed": ["a"]}}], "Unknown key 'output_needed'"),
        (f"{NODE}.eval_policy", "most", "nodes.brew.eval_policy cannot be 'most'."),
        ("edges.0", {"from": "brew"}, "'to' is missing in edges[0]."),
        ("edges.0", {"from": "brew", "to": "brew", "max_iterations": 0}, "max_iterations must be a whole number"),
        ("edges.0", {"from": "brew", "to": "brew", "when": True}, "edges[0].when must be a string, not 'true'."),
        ("edges.0", {"from": "brew", "to": "brew", "if": "x"}, "Unknown key 'if' in edges[0]."),
        ("skills", {"s": SKILL | {"tools": []}}, "Unknown key 'tools' in skills.s."),
        ("skills", {"s": {"mcp": {}}}, "skills.s.mcp has neither 'command' nor 'url'."),
        ("skills", {"s": {"mcp": {"command": "a", "type": "sse"}}}, "skills.s.mcp.type cannot be 'sse'."),
        ("skills", {"s": {"mcp": {"command": "a", "env": {"A": 1}}}}, "skills.s.mcp.env.A must be a string"),
        ("inputs", {"a": {}}, "'type' is missing in inputs.a."),
        ("inputs", {"a": {"type": "str"}}, "inputs.a.type cannot be 'str'."),
        ("inputs", {"a": {"type": "string", "default": 5}}, "inputs.a.default must be a text, not 5."),
        ("inputs", {"a": {"type": "string", "default": None}}, "inputs.a.default must be a text, not null."),
        ("inputs", {"a": {"type": "number", "default": True}}, "inputs.a.default must be a number, not true."),
        ("inputs", {"a": {"type": "string[]", "enum": ["b"]}}, "inputs.a.enum[0] must be a list of strings"),
        ("inputs", {"a": {"type": "string", "enum": []}}, "inputs.a.enum must not be empty."),
        ("inputs", {"a": {"type": "string", "required": True, "default": "b"}}, "inputs.a is required and has a default."),
    ],
)  # fmt: skip
def test_what_the_published_schema_refuses_is_refused_by_name(path: str, value: Any, says: str) -> None:
    found = [one for one in problems((path, value)) if one.code == "SCHEMA"]
    assert [one for one in found if says in one.message] != []
    assert all(one.line and one.fix for one in found)


@pytest.mark.parametrize(
    ("path", "value", "code", "says"),
    [
        (f"{NODE}.eval_policy", "any_pass", "UNSUPPORTED_EVAL_POLICY", "'any_pass' is not supported yet."),
        (f"{NODE}.eval_policy", "weighted", "UNSUPPORTED_EVAL_POLICY", "'weighted' is not supported yet."),
        (f"{NODE}.eval", [JUDGE | {"pass_when": "very good"}], "INVALID_PASS_WHEN", "must be one word"),
        (f"{NODE}.eval", [JUDGE | {"pass_when": "yes\n"}], "INVALID_PASS_WHEN", "must be one word"),
        (f"{NODE}.eval", [EVAL | {"rule": {"any_tool_called": ["a"]}}], "RULE_OF_OTHER_KIND", "apply to kind 'value'"),
        (f"{NODE}.eval", [EVAL | {"kind": "function"}], "RULE_OF_OTHER_KIND", "apply to kind 'function'"),
        ("skills", {"s": {}}, "INVALID_INLINE_SKILL", "skills.s has neither an instruction nor a tool server."),
        ("skills", {"s": {"name": "S", "instruction": ""}}, "INVALID_INLINE_SKILL", "neither"),
        ("skills", {"s": {"mcp": {"type": "http", "command": "a"}}}, "INVALID_MCP", "of type 'http' but has no url"),
        ("skills", {"s": {"mcp": {"command": ""}}}, "INVALID_MCP", "has no command"),
        ("rules", [{"url": "ftp://a"}], "SOURCE_INVALID_SHAPE", "'ftp://a' is not a valid URL."),
        ("rules", [{"url": "https://a", "type": "git"}], "SOURCE_INVALID_TYPE", "Unknown source type 'git'"),
        (f"{NODE}.requires", {"output_matches": [{"path": "a", "matches": "(?=x)"}]}, "UNSUPPORTED_REGEX", "uses lookahead"),
        (f"{NODE}.requires", {"output_matches": [{"path": "a", "matches": r"(a)\1"}]}, "UNSUPPORTED_REGEX", "uses a backreference"),
        (f"{NODE}.output", {"type": "text"}, "INVALID_OUTPUT_SCHEMA", "'text' is not valid"),
        (f"{NODE}.output", {"$ref": "https://example.com/a.json"}, "INVALID_OUTPUT_SCHEMA", "does not point into the schema"),
        (f"{NODE}.output", {"properties": {"a": {"$ref": "#/$defs/b"}}}, "INVALID_OUTPUT_SCHEMA", "does not point"),
        (f"{NODE}.output", {"properties": {"a": {"pattern": "(?!a)"}}}, "UNSUPPORTED_REGEX", "'(?!a)'"),
    ],
)  # fmt: skip
def test_problems_beyond_the_schema_have_their_own_codes(path: str, value: Any, code: str, says: str) -> None:
    (found,) = problems((path, value))
    assert found.code == code
    assert says in found.message
    assert found.fix


def test_a_number_that_json_cannot_represent_is_refused() -> None:
    text = MINIMAL + "inputs: {a: {type: number, default: .inf}}\n"
    assert [(one.code, one.line) for one in refusal(text)] == [("NOT_FINITE", 9)]
    text = MINIMAL.replace("tea.\n", "tea.\n    output: {properties: {a: {maximum: .nan}}}\n")
    assert [one.code for one in refusal(text)] == ["NOT_FINITE"]


def test_verify_is_refused_with_a_fix() -> None:
    text = MINIMAL.replace("tea.\n", "tea.\n    verify: {any_tool_called: [a]}\n")
    (found,) = refusal(text)
    assert (found.line, found.code) == (8, "SCHEMA")
    assert "Rename it to 'eval' and write a list of evaluators" in found.fix


def test_refused_keys_are_not_suggested() -> None:
    (found,) = refusal(MINIMAL.replace("tea.\n", "tea.\n    zzz: 1\n"))
    assert "instruction" in found.fix
    assert "verify" not in found.fix


def test_all_problems_are_reported_together_in_line_order() -> None:
    text = """\
name: Tea
id: tea
entry: boil
nodes:
  brew: {name: Brew, instruction: Brew., max_turns: 0}
  pour: {name: Pour}
edges:
  - {from: brew, to: drink, max_iterations: none}
"""
    assert [(one.line, one.code) for one in refusal(text)] == [
        (3, "MISSING_ENTRY"), (5, "SCHEMA"), (6, "SCHEMA"), (8, "SCHEMA"), (8, "UNKNOWN_EDGE_TARGET"),
    ]  # fmt: skip
    with pytest.raises(InvalidPlaybook) as caught:
        parse(text, "folder/tea.yml")
    assert "folder/tea.yml:3: The entry 'boil' is not a node. Use one of: brew, pour. [MISSING_ENTRY]" in str(
        caught.value
    )


def test_the_number_of_reported_problems_is_limited() -> None:
    values = edited(MINIMAL, ("nodes", {f"n{number}": {} for number in range(5000)}))
    with pytest.raises(InvalidPlaybook) as caught:
        parse(json.dumps(values), "a.json")
    assert len(caught.value.problems) == 201
    assert "more problems from here on" in caught.value.problems[-1].message


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("id: a\nid: b\n", 2, "'id' is defined twice."),
        ("id: [\n", 2, "invalid YAML"),
        ("id: !x a\n", 1, "unknown tag '!x'"),
        ("id: a\nb: \ud800", 2, "this is not valid text"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_where_it_breaks(text: str, line: int, says: str) -> None:
    (found,) = refusal(text)
    assert (found.line, found.code) == (line, "PARSE")
    assert says in found.message


@pytest.mark.parametrize("text", ["", "- a\n", "text", "5", "null"])
def test_a_text_that_is_not_a_mapping_is_not_a_workflow(text: str) -> None:
    (found,) = refusal(text)
    assert found.message == "A workflow must be a table of names and values."


def test_a_text_can_be_too_long() -> None:
    (found,) = refusal(MINIMAL + "#" * 32_000_000)
    assert "the text has more than 32,000,000 characters" in found.message


def test_codes_are_not_shown_for_a_dialect_without_codes() -> None:
    assert str(InvalidPlaybook("a.md", [Problem("Bad", 1, "Mend it.", "F1")])) == "a.md:1: Bad. Mend it."
    assert codes(("entry", "pour")) == ["MISSING_ENTRY"]
