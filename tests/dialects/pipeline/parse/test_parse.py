"""From text to document: the fields of a pipeline, and every mistake with its line, code and fix."""

from __future__ import annotations

import json
import re

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.pipeline import PIPELINE
from cuebook.dialects.pipeline.model import (
    ArgRef,
    Constant,
    DomContains,
    HttpStatus,
    JsonPath,
    Llm,
    Operation,
    Output,
    Postcondition,
    Retry,
    Secret,
    Step,
    StepRef,
    Words,
)
from cuebook.dialects.pipeline.parse import MOST_STEPS, SIZE_LIMIT, parse, slug
from cuebook.formats.yaml import read_yaml
from tests.dialects.pipeline.samples import FULL, MINIMAL, pipeline, problem, problems, step, warned, with_step


def test_a_name_and_a_step_are_enough() -> None:
    made = pipeline(MINIMAL)
    assert (made.name, made.title, made.id) == ("Say hello", "Say hello", "say-hello")
    assert [(one.id, one.namespace, one.line) for one in made.steps] == [("hello", "cli", 3)]
    assert [(one.label, one.title) for one in made.plan] == [("hello", "hello")]
    assert made.warnings == ()


@pytest.mark.parametrize("written", ["step", "Steps", "STEPS"])
def test_misspelt_steps_are_reported_with_their_line(written: str) -> None:
    found = problems(MINIMAL.replace("steps", written))
    assert (found[-1].line, found[-1].message) == (2, f"Unknown key '{written}' in the pipeline.")
    assert found[-1].fix == "Did you mean 'steps'?"


def test_the_version_defaults_to_a_digest_of_the_content() -> None:
    assert pipeline(MINIMAL).version == pipeline(MINIMAL).version
    assert pipeline(MINIMAL).version != pipeline(MINIMAL + "# more\n").version
    assert pipeline(FULL).version == "1.2"


@pytest.mark.parametrize(
    ("name", "id"), [("Release it!", "release-it"), ("--", "pipeline"), ("A--b", "a-b"), ("x" * 99, "x" * 64)]
)
def test_an_id_is_derived_from_the_name(name: str, id: str) -> None:
    assert slug(name) == id


def test_names_in_other_scripts_have_distinct_ids() -> None:
    names = ["☃", "日本", "日本 1", "中国 1", "резерв", "Ü"]
    assert len({slug(name) for name in names}) == len(names)
    assert slug("日本 1").startswith("1-")
    assert slug("Überblick") == "berblick"


def test_every_field_is_parsed() -> None:
    made = pipeline(FULL)
    test, notes, tag, post, tell = made.steps
    assert (made.id, made.description) == ("release", "Every field of the format, and every one of ours.")
    assert made.allowed_domains == ("api.example.com", "*.example.org")
    assert made.policy == {"allowed_domains": ["api.example.com", "*.example.org"]}
    assert made.consent_boundary == "Nothing is sent before a person agreed."
    assert (test.name, test.timeout, test.effect, test.cwd) == ("Run the tests", 120.0, "read", "packages/core")
    assert test.output == Output("text", None, 100_000, 16)
    assert test.env == {
        "LEVEL": Words(("3",), 19),
        "TOKEN": Secret("", "token", "Bearer {}", 19),
        "QUIET": Words(("true",), 19),
    }
    assert notes.stdin == Words((StepRef("test", ("stdout",)),), 23)
    assert notes.condition == Operation(
        "&&",
        (
            Operation("==", (StepRef("test", ("exit_code",)), Constant(0))),
            Operation(
                "!",
                (
                    Operation(
                        "||",
                        (StepRef("test", ("skipped",)), Operation("<", (ArgRef("count"), Constant(2)))),
                    ),
                ),
            ),
        ),
    )
    assert notes.action == Llm(
        "anthropic/claude-sonnet-4",
        Words(("Notes for ", ArgRef("version"), "."), 27),
        ("Read", "WebFetch", "github.get_issue"),
        2,
        5000,
        2,
    )
    assert (tag.approval, tag.rollback_hint, tag.on_error, test.approval) == (True, "git tag -d", "stop", False)
    assert post.postcondition == Postcondition(
        (HttpStatus(201), JsonPath(("items", 0, "name"), {"a": [1, None]}, "$.items[0].name")), {"owner": "team"}, 48
    )
    assert post.retry == Retry(3, 0.5, "exponential", 2.0, True)
    assert [one.on_error for one in made.steps] == ["stop", "stop", "stop", "continue", "skip_rest"]
    assert tell.condition_text == "$post.error != true"


def test_fields_beyond_the_format_are_recorded() -> None:
    beyond = {one.id: one.beyond for one in pipeline(FULL).steps}
    assert beyond == {
        "test": ("timeout_ms", "env", "cwd", "effect", "output.max_bytes"),
        "notes": ("llm.max_tokens", "llm.max_repairs"),
        "tag": ("with", "on_error"),
        "post": ("with", "retry", "on_error"),
        "tell": ("with", "on_error"),
    }


def test_json_and_yaml_produce_the_same_document() -> None:
    as_json = json.dumps(read_yaml(FULL).plain)
    made, other = pipeline(FULL), parse(as_json, "pipeline.json")
    assert _lineless(other.steps) == _lineless(made.steps)
    assert (other.id, other.inputs, other.plan) == (made.id, made.inputs, made.plan)


def _lineless(steps: tuple[Step, ...]) -> str:
    return re.sub(r"\bline=\d+", "", repr(steps))


# --- the shape ---


@pytest.mark.parametrize(
    ("text", "line", "code", "said"),
    [
        ("name: [broken", 1, "PARSE", "invalid YAML"),
        ("- a list", 1, "SCHEMA", "A pipeline must be a table"),
        ("steps:\n  - {id: a, command: cli x}\n", 1, "SCHEMA", "'name' is missing"),
        ("name: A\n", 1, "SCHEMA", "'steps' is missing"),
        ("name: A\nsteps: []\n", 2, "SCHEMA", "steps must not be empty"),
        ("name: A\nsteps: {a: 1}\n", 2, "SCHEMA", "steps must be a list"),
        ("name: '  '\nsteps:\n  - {id: a, command: cli x}\n", 1, "SCHEMA", "name must not be empty"),
        ("name: A\nversion: 1.0\nsteps:\n  - {id: a, command: cli x}\n", 2, "SCHEMA", "version must be a string"),
        ("name: A\nstep: 1\nsteps:\n  - {id: a, command: cli x}\n", 2, "SCHEMA", "Unknown key 'step'"),
        ("name: A\nsteps:\n  - {command: cli x}\n", 3, "SCHEMA", "'id' is missing in steps[0]"),
        ("name: A\nsteps:\n  - {id: a}\n", 3, "SCHEMA", "'command' is missing in steps.a"),
        ("name: A\nsteps:\n  - {id: a, command: ''}\n", 3, "SCHEMA", "steps.a.command must not be empty"),
        ("name: A\nsteps:\n  - just text\n", 3, "SCHEMA", "steps[0] must be a table"),
        ("name: A\nsteps:\n  - {id: a b, command: cli x}\n", 3, "BAD_ID", "'a b' is not a valid step id"),
        ("name: A\nsteps:\n  - {id: a, command: cli x, run: 1}\n", 3, "SCHEMA", "Unknown key 'run' in steps.a"),
        (f"name: A\nid: a\nallowed_domains: [https://x.y]\n{MINIMAL[16:]}", 3, "BAD_DOMAIN", "is not a host"),
        (f"name: A\nallowed_domains: []\n{MINIMAL[16:]}", 2, "SCHEMA", "must not be empty"),
        ("name: A\nsteps:\n  - &a {id: a, command: *a}\n", 3, "PARSE", "circular alias"),
        ("name: A\nname: B\n", 2, "PARSE", "'name' is defined twice"),
    ],
)
def test_a_wrong_shape_is_reported_with_its_line(text: str, line: int, code: str, said: str) -> None:
    found = problems(text)[0]
    assert (found.line, found.code) == (line, code), found
    assert said in found.message
    assert found.fix


def test_two_steps_with_the_same_id_are_refused() -> None:
    text = "name: A\nsteps:\n  - {id: a, command: cli x}\n  - {id: b, command: cli x}\n  - {id: a, command: cli y}\n"
    found = problem(text)
    assert (found.line, found.code) == (5, "DUPLICATE_STEP")
    assert "line 3" in found.fix


def test_all_mistakes_are_reported_at_once_in_line_order() -> None:
    text = (
        "name: A\nsteps:\n"
        "  - {id: a, command: echo hi}\n"
        "  - {id: b, command: cli x, stdin: $c.stdout}\n"
        "  - {id: c, command: cli x, condition: 'a ==', approval: true}\n"
    )
    assert [(one.line, one.code) for one in problems(text)] == [
        (3, "UNKNOWN_NAMESPACE"),
        (4, "FORWARD_REFERENCE"),
        (5, "BAD_CONDITION"),
        (5, "SCHEMA"),
    ]
    with pytest.raises(InvalidPlaybook, match=r"pipeline\.yml:3: .* \[UNKNOWN_NAMESPACE\]"):
        parse(text, "pipeline.yml")


def test_an_oversized_text_is_refused_before_it_is_parsed() -> None:
    assert problem("x" * (SIZE_LIMIT + 1)).code == "PARSE"
    deep = "name: A\nsteps: " + "[" * 200 + "]" * 200
    assert problem(deep).code == "PARSE"
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(8)
    )
    assert problem(bomb).code == "PARSE"


def test_the_number_of_steps_is_limited() -> None:
    lines = "".join(f"  - {{id: s{number}, command: cli x}}\n" for number in range(MOST_STEPS + 1))
    assert problem(f"name: A\nsteps:\n{lines}").line == MOST_STEPS + 3
    assert len(pipeline(f"name: A\nsteps:\n{lines[: lines.index('  - {id: s1000,')]}").steps) == 1000


# --- fields of a step ---


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        (["command: cli x", "approval: true"], "SCHEMA", "can only be 'required'"),
        (["command: cli x", "approval: maybe"], "SCHEMA", "can only be 'required'"),
        (["command: cli x", "output: xml"], "SCHEMA", "output cannot be 'xml'"),
        (["command: cli x", "output: {type: text, schema: {}}"], "SCHEMA", "has a schema but is not JSON"),
        (["command: cli x", "output: {type: json, schema: [1]}"], "SCHEMA", "must be a JSON Schema"),
        (["command: cli x", "output: {schema: true}"], "SCHEMA", "'type' is missing"),
        (["command: cli x", "output: {type: json, schema: {type: objct}}"], "INVALID_OUTPUT_SCHEMA", "cannot be used"),
        (["command: cli x", "output: {type: json, schema: {$ref: 'http://x/y'}}"], "INVALID_OUTPUT_SCHEMA", "http://x"),
        (["command: cli x", "output: {type: json, schema: {pattern: '(?=a)'}}"], "UNSUPPORTED_REGEX", "(?=a)"),
        (["command: cli x", "retry: {max_attempts: 2, delay_ms: 9, max_delay_ms: 8}"], "SCHEMA", "above max_delay_ms"),
        (["command: cli x", "timeout_ms: 0"], "SCHEMA", "a whole number of at least 1"),
        (["command: cli x", "on_error: ignore"], "SCHEMA", "on_error cannot be 'ignore'"),
        (["command: cli x", "effect: none"], "SCHEMA", "effect cannot be 'none'"),
        (["command: cli x", "retry: {delay_ms: 5}"], "SCHEMA", "'max_attempts' is missing"),
        (["command: cli x", "retry: 21"], "SCHEMA", "above 20"),
        (["command: cli x", "retry: {max_attempts: 2, backoff: wild}"], "SCHEMA", "cannot be 'wild'"),
        (["command: cli x", "env: {1A: x}"], "SCHEMA", "is not a valid variable name"),
        (["command: cli x", "env: [A]"], "SCHEMA", "must be a table"),
        (["command: cli x", 'env: {A: "a\\0b"}'], "SCHEMA", "contains a NUL character"),
        (["command: cli x", "cwd: /etc"], "BAD_FOLDER", "is not below the workspace"),
        (["command: cli x", "cwd: a/../../b"], "BAD_FOLDER", "contains '..'"),
        (["command: cli x", "cwd: ~/x"], "BAD_FOLDER", "is not below"),
        (["command: cli x", "llm: {model: m, prompt: p}"], "NOT_OF_THIS_STEP", "cli steps have no 'llm'"),
        (["command: http https://x.y", "env: {A: b}"], "NOT_OF_THIS_STEP", "http steps have no 'env'"),
        (["command: http https://x.y", "cwd: a"], "NOT_OF_THIS_STEP", "http steps have no 'cwd'"),
        (["command: mcp a.b", "stdin: hello"], "NOT_OF_THIS_STEP", "mcp steps have no 'stdin'"),
        (["command: http https://x.y", "stdin: hello"], "BAD_COMMAND", "GET requests have none"),
        (["command: http POST https://x.y", "stdin: hello", "with: {body: x}"], "BAD_COMMAND", "two bodies"),
    ],
)
def test_an_invalid_field_is_refused(lines: list[str], code: str, said: str) -> None:
    found = problem(with_step(*lines))
    assert found.code == code, found
    assert said in found.message
    assert found.line is not None
    assert 5 <= found.line <= 9


@pytest.mark.parametrize("schema", ["true", "false", "{}", "{type: 'null'}"])
def test_a_schema_is_an_object_or_a_boolean(schema: str) -> None:
    made = step("command: cli x", f"output: {{type: json, schema: {schema}}}")
    assert made.output is not None
    assert made.output.schema == read_yaml(schema).plain


def test_retry_can_be_a_number_of_attempts() -> None:
    assert step("command: cli x", "retry: 3").retry == Retry(3, 1.0, "fixed", None, False)


def test_stdin_may_be_any_text() -> None:
    assert step("command: cli x", 'stdin: "a\\nb\\n"').stdin == Words(("a\nb\n",), 7)
    assert step("command: http PUT https://x.y", "stdin: $first.stdout").stdin == Words(
        (StepRef("first", ("stdout",)),), 7
    )


# --- llm ---

ASKING = ["command: llm", "llm: {model: default, prompt: Hi.}", "output: json"]


def test_a_model_needs_little() -> None:
    made = step(*ASKING)
    assert made.action == Llm("default", Words(("Hi.",), 7))
    assert made.reads_only


def test_a_word_after_llm_is_ignored() -> None:
    assert step("command: llm generate", *ASKING[1:]).action == step(*ASKING).action


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        (["command: llm", "output: json"], "BAD_LLM", "'llm' is missing"),
        (["command: llm", "llm: {model: m, prompt: p}"], "BAD_LLM", "must have JSON output"),
        (["command: llm", "llm: {model: m, prompt: p}", "output: text"], "BAD_LLM", "must have JSON output"),
        (["command: llm", "llm: {prompt: p}", "output: json"], "SCHEMA", "'model' is missing"),
        (["command: llm", "llm: {model: m}", "output: json"], "SCHEMA", "'prompt' is missing"),
        (["command: llm", "llm: {model: m, prompt: p, temperature: 1}", "output: json"], "SCHEMA", "'temperature'"),
        (["command: llm", "llm: {model: m, prompt: p, max_tool_calls: -1}", "output: json"], "SCHEMA", "at least 0"),
        (["command: llm", "llm: {model: m, prompt: p, max_repairs: 6}", "output: json"], "SCHEMA", "above 5"),
        (["command: llm say hello", *ASKING[1:]], "BAD_COMMAND", "text after llm is ignored"),
        (["command: llm 'say hello'", *ASKING[1:]], "BAD_COMMAND", "text after llm is ignored"),
        ([*ASKING, "with: {model: m}"], "NOT_OF_THIS_STEP", "llm steps have no 'with'"),
        ([*ASKING, "effect: read"], "NOT_OF_THIS_STEP", "llm steps have no 'effect'"),
    ],
)
def test_an_invalid_llm_step_is_refused(lines: list[str], code: str, said: str) -> None:
    found = problem(with_step(*lines))
    assert found.code == code, found
    assert said in found.message


@pytest.mark.parametrize(
    ("written", "tools"),
    [
        ("[webfetch, bash]", ("WebFetch", "Bash")),
        ("[tool.exec, tool.http.fetch, tool.fs.read]", ("Bash", "WebFetch", "Read")),
        ("[tool.fs.*, read]", ("Read", "Write", "Edit", "Glob", "Grep")),
        ("[mcp.github.get, github.get]", ("github.get",)),
        ("[mcp.say]", ("mcp.say",)),
    ],
)
def test_tools_are_mapped_to_their_cuebook_names(written: str, tools: tuple[str, ...]) -> None:
    config = f"llm: {{model: m, prompt: p, max_tool_calls: 1, tools: {{allow: {written}}}}}"
    action = step("command: llm", config, "output: json").action
    assert isinstance(action, Llm)
    assert action.tools == tools


@pytest.mark.parametrize("written", ["['*']", "[tool.*]", "[github.*]", "[bsh]", "[.x]", "[x.]"])
def test_unknown_tools_are_refused_before_any_call(written: str) -> None:
    config = f"llm: {{model: m, prompt: p, max_tool_calls: 1, tools: {{allow: {written}}}}}"
    assert problem(with_step("command: llm", config, "output: json")).code == "UNKNOWN_TOOL"


def test_tools_without_calls_are_warned_about() -> None:
    for config in ("max_tool_calls: 2", "tools: {allow: [read]}"):
        (found,) = warned(with_step("command: llm", f"llm: {{model: m, prompt: p, {config}}}", "output: json"))
        assert (found.code, found.line) == ("NO_TOOL_CALLS", 7)


def test_the_effect_of_a_model_depends_on_its_tools() -> None:
    def asked(tools: str) -> bool:
        config = f"llm: {{model: m, prompt: p, max_tool_calls: 1, tools: {{allow: {tools}}}}}"
        return step("command: llm", config, "output: json").reads_only

    assert asked("[read, grep, websearch]")
    assert not asked("[read, bash]")
    assert not asked("[github.get]")


# --- postconditions ---


@pytest.mark.parametrize(
    ("written", "assertions"),
    [
        ("{type: http_status, equals: 200}", (HttpStatus(200),)),
        ("[{type: http_status, equals: 0}]", (HttpStatus(0),)),
        ("{type: dom_contains, text: Done}", (DomContains("Done"),)),
        (
            "{type: dom_contains, text: Done, selector: '#a', case_insensitive: true}",
            (DomContains("Done", "#a", True),),
        ),
        ("{type: json_path, path: $, equals: null}", (JsonPath((), None, "$"),)),
        ("{type: json_path, path: ' $.a[10].b-c ', equals: 1}", (JsonPath(("a", 10, "b-c"), 1, "$.a[10].b-c"),)),
    ],
)
def test_postconditions(written: str, assertions: tuple[object, ...]) -> None:
    made = step("command: http https://x.y", f"postcondition: {written}").postcondition
    assert made is not None
    assert made.assertions == assertions


@pytest.mark.parametrize(
    "written",
    [
        "42",
        "text",
        "[]",
        "[42]",
        "[{equals: 200}]",
        "{foo: bar}",
        "{type: sql, query: select}",
        "{assertions: not-a-list}",
        "{assertions: []}",
        "{type: http_status}",
        "{type: http_status, equals: '200'}",
        "{type: http_status, equals: 2.5}",
        "{type: http_status, equals: 65536}",
        "{type: http_status, equals: -1}",
        "{type: http_status, equals: 200, also: 201}",
        "{type: dom_contains, text: 42}",
        "{type: dom_contains, text: a, case_insensitive: maybe}",
        "{type: json_path, equals: 1}",
        "{type: json_path, path: $.x}",
        "{type: json_path, path: '', equals: 1}",
        "{type: json_path, path: foo, equals: 1}",
        "{type: json_path, path: $., equals: 1}",
        "{type: json_path, path: '$.items[0', equals: 1}",
        "{type: json_path, path: '$.items[]', equals: 1}",
        "{type: json_path, path: '$.items[-1]', equals: 1}",
        "{type: json_path, path: $..items, equals: 1}",
        "{type: json_path, path: $foo, equals: 1}",
    ],
)
def test_a_postcondition_that_could_not_be_checked_is_refused_at_load(written: str) -> None:
    found = problems(with_step("command: http https://x.y", f"postcondition: {written}"))
    assert {one.code for one in found} == {"BAD_POSTCONDITION"}
    assert found[0].line == 7


def test_evidence_that_a_step_never_has_is_warned_about() -> None:
    for kind in ("{type: http_status, equals: 200}", "{type: dom_contains, text: x}"):
        (found,) = warned(with_step("command: cli x", f"postcondition: {kind}"))
        assert (found.code, found.line) == ("NO_EVIDENCE", 7)
    assert not warned(with_step("command: cli x", "postcondition: {type: json_path, path: $, equals: 1}"))


# --- what changes something ---


@pytest.mark.parametrize(
    ("lines", "reads_only"),
    [
        (["command: cli ls"], False),
        (["command: cli ls", "effect: read"], True),
        (["command: http https://x.y"], True),
        (["command: http HEAD https://x.y"], True),
        (["command: http DELETE https://x.y"], False),
        (["command: http POST https://x.y", "effect: read"], True),
        (["command: http GET https://x.y", "effect: write"], False),
        (["command: mcp a.b"], False),
        (["command: mcp a.b", "effect: read"], True),
    ],
)
def test_which_steps_only_read(lines: list[str], reads_only: bool) -> None:
    assert step(*lines).reads_only is reads_only


# --- the dialect ---


def test_the_outline_lists_the_steps() -> None:
    assert [(one.label, one.title) for one in PIPELINE.outline(pipeline(FULL))] == [
        ("test", "Run the tests"), ("notes", "notes"), ("tag", "tag"), ("post", "post"), ("tell", "tell"),
    ]  # fmt: skip
