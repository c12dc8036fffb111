"""References: they are resolved at load, and a secret is allowed only where others cannot see it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.pipeline.model import ArgRef, Secret, StepRef, Words
from cuebook.dialects.pipeline.parse.references import RESULT_FIELDS, as_written, is_handle
from tests.dialects.pipeline.samples import pipeline, problem, problems, step, warned, with_step

ARGS = "args: {name: x, token: {secret: true}, other: {secret: true}}\n"


@pytest.mark.parametrize("field", [field for field in RESULT_FIELDS if field != "files"])
def test_a_result_has_fields(field: str) -> None:
    assert step("command: cli x", f"stdin: $first.{field}").stdin == Words((StepRef("first", (field,)),), 7)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("$first.json.a.b", ("json", "a", "b")),
        ("$first.json.0.a-b", ("json", 0, "a-b")),
        ("$first.json.01.00", ("json", "01", "00")),
        ("  $first.json  ", ("json",)),
        ("${first.json.items.10}", ("json", "items", 10)),
        ("${ first.json }", ("json",)),
    ],
)
def test_a_path_leads_into_json(written: str, path: tuple[str | int, ...]) -> None:
    stdin = step("command: cli x", f"stdin: '{written}'").stdin
    assert isinstance(stdin, Words)
    assert stdin.parts == (StepRef("first", path),)


@pytest.mark.parametrize(
    ("written", "code", "said"),
    [
        ("$frist.stdout", "UNKNOWN_REFERENCE", "an unknown step"),
        ("$it.stdout", "CIRCULAR_REFERENCE", "the step refers to itself"),
        ("$later.stdout", "FORWARD_REFERENCE", "a later step"),
        ("${later.json.a}", "FORWARD_REFERENCE", "a later step"),
        ("$first.output", "UNKNOWN_REFERENCE", "a step has no 'output'"),
        ("$first.stdout.a", "UNKNOWN_REFERENCE", "'$first.stdout' has no parts"),
        ("${first}", "UNKNOWN_ARG", "an undeclared argument"),
        ("a ${nme} b", "UNKNOWN_ARG", "an undeclared argument"),
        ("$first", "BAD_REFERENCE", "'$first' is not a reference"),
        ("$name", "BAD_REFERENCE", "'$name' is not a reference"),
        ("${}", "BAD_REFERENCE", "'${}' is not a reference"),
        ("a ${HOME:-x}", "BAD_REFERENCE", "'${HOME:-x}' is not a reference"),
        ("a ${name", "BAD_REFERENCE", "is not closed"),
        ("$5.00", "UNKNOWN_REFERENCE", "an unknown step"),
    ],
)
@pytest.mark.parametrize("place", ["stdin", "env", "argv", "prompt", "with"])
def test_an_unresolvable_reference_is_an_error_with_its_line(place: str, written: str, code: str, said: str) -> None:
    lines = {
        "stdin": ["command: cli x", f"stdin: '{written}'"],
        "env": ["command: cli x", f"env: {{A: '{written}'}}"],
        "argv": ["command: cli", f"with: {{argv: [x, '{written}']}}"],
        "prompt": ["command: llm", f"llm: {{model: m, prompt: '{written}'}}", "output: json"],
        "with": ["command: mcp a.b", f"with: {{arguments: {{a: {{b: ['{written}']}}}}}}"],
    }[place]
    later = "  - id: later\n    command: cli x\n"
    found = problem(with_step(*lines, args="args: {name: x}\n") + later)
    assert (found.code, found.line) == (code, 8), found
    assert said in found.message


@pytest.mark.parametrize(
    "lines",
    [
        ["command: mcp", "with: {tool: '${name}.tool'}"],
        ["command: mcp ${name}.tool", "on_error: stop"],
        ["command: mcp $first.stdout", "on_error: stop"],
        ["command: mcp a.b ${name}=x", "on_error: stop"],
        ["command: mcp a.b", "with: {arguments: {'${name}': 1}}"],
        ["command: mcp a.b", "with: {arguments: {a: {b: [{$first.stdout: 1}]}}}"],
        ["command: http POST https://x.y", "with: {json: {a: {'a ${name}': 1}}}"],
        ["command: http https://x.y", "with: {query: {'${name}': 1}}"],
        ["command: http https://x.y", "with: {headers: {$first.stdout: a}}"],
        ["command: llm", "llm: {model: '${name}', prompt: p}", "output: json"],
        ["command: llm", "llm: {model: m, prompt: p, max_tool_calls: 1, tools: {allow: [$name.x]}}", "output: json"],
        ["command: cli x", "cwd: $name"],
        ["command: cli x", "cwd: a/${name}"],
    ],
)
def test_a_reference_that_is_not_replaced_is_an_error(lines: list[str]) -> None:
    found = problem(with_step(*lines, args=ARGS))
    line = 7 if lines[-1] == "on_error: stop" else 8
    assert (found.code, found.line) == ("BAD_REFERENCE", line), found
    assert "is not replaced here" in found.message


def test_a_name_with_a_dollar_may_belong_to_another_language() -> None:
    lines = ["command: mcp db.find", "with: {arguments: {pipeline: [{$limit: 5}, {$name: 1}, {$$first: 2}]}}"]
    made = with_step(*lines, args="args: {name: x}\n")
    assert pipeline(made).steps[1].action.arguments == {"pipeline": [{"$limit": 5}, {"$name": 1}, {"$$first": 2}]}  # type: ignore[union-attr]
    assert [(one.code, one.line) for one in warned(made)] == [("NOT_REPLACED", 8)]


def test_a_similar_name_is_suggested_and_a_dollar_explained() -> None:
    found = problem(with_step("command: cli x", "stdin: $frist.stdout"))
    assert "Did you mean 'first'?" in found.fix
    assert "$$" in found.fix
    assert "${first.stdout}" in problem(with_step("command: cli x", "stdin: ${first}")).fix


def test_two_dollars_are_one() -> None:
    assert step("command: cli x", "stdin: $$first.stdout costs $$5, ${name} $${name}", args=ARGS).stdin == Words(
        ("$first.stdout costs $5, ", ArgRef("name"), " ${name}"), 8
    )


@pytest.mark.parametrize("text", ["hello $name", "$first.stdout and more", "a $name-b"])
def test_a_name_without_braces_within_text_is_warned_about(text: str) -> None:
    found = warned(with_step("command: cli x", f"stdin: {text}", args="args: {name: x, name-b: y}\n"))
    assert {one.code for one in found} == {"NOT_REPLACED"}
    assert found[0].line == 8


def test_other_dollars_are_ignored() -> None:
    assert not warned(with_step("command: cli x", "stdin: $HOME costs $5 a$"))


@pytest.mark.parametrize(
    ("target", "field", "odd"),
    [
        ("cli x", "exit_code", False),
        ("cli x", "status", True),
        ("http https://x.y", "status", False),
        ("http https://x.y", "exit_code", True),
        ("mcp a.b", "exit_code", True),
    ],
)
def test_a_field_that_a_step_never_has_is_warned_about(target: str, field: str, odd: bool) -> None:
    text = f"name: A\nsteps:\n  - id: a\n    command: {target}\n  - id: b\n    command: cli x\n"
    found = warned(f"{text}    condition: $a.{field} == 0\n")
    assert [(one.code, one.line) for one in found] == ([("ALWAYS_NULL", 7)] if odd else [])


# --- secrets ---


@pytest.mark.parametrize("handle", ["github", "env:GITHUB_TOKEN", "keyring:my key", "file:/run/secret", "a.b@c-d"])
def test_handles(handle: str) -> None:
    assert is_handle(handle)


@pytest.mark.parametrize("handle", ["", "a b", "https://x", "env:", "env: ", "vault:x", "x" * 65, "-a", "env:a\nb"])
def test_an_invalid_handle_is_refused(handle: str) -> None:
    assert not is_handle(handle)


@pytest.mark.parametrize(
    ("written", "secret"),
    [
        ("secret:github", Secret("github", "", "{}", 8)),
        ("secret:env:TOKEN", Secret("env:TOKEN", "", "{}", 8)),
        ("${token}", Secret("", "token", "{}", 8)),
        ("Bearer ${token}", Secret("", "token", "Bearer {}", 8)),
        ("Bearer ${secret:github}", Secret("github", "", "Bearer {}", 8)),
        ("$$5 ${secret:keyring:x}", Secret("keyring:x", "", "$5 {}", 8)),
    ],
)
def test_a_secret_is_allowed_where_only_a_program_sees_it(written: str, secret: Secret) -> None:
    assert step("command: cli x", f"stdin: '{written}'", args=ARGS).stdin == secret
    assert step("command: cli x", f"env: {{A: '{written}'}}", args=ARGS).env == {"A": secret}


@pytest.mark.parametrize(
    "lines",
    [
        ["command: cli x ${token}"],
        ["command: cli x secret:github"],
        ["command: cli", "with: {argv: [x, '${token}']}"],
        ["command: http https://x.y/${token}"],
        ["command: http https://x.y", "with: {query: {a: '${token}'}}"],
        ["command: http POST https://x.y", "with: {json: ['${token}']}"],
        ["command: cli x", "condition: ${token} == 'a'"],
        ["command: llm", "llm: {model: m, prompt: 'a ${token}'}", "output: json"],
        ["command: llm", "llm: {model: m, prompt: 'secret:github'}", "output: json"],
        ["command: llm", "llm: {model: m, prompt: p}", "output: json", "stdin: '${token}'"],
        ["command: mcp a.b", "with: {arguments: {a: ['${token}']}}"],
        ["command: mcp a.b", "with: {arguments: {a.b: '${token}'}}"],
        ["command: cli x", "stdin: ${token} and ${name}"],
        ["command: cli x", "stdin: ${token} and ${first.stdout}"],
        ["command: cli x", "stdin: ${token} and ${other}"],
    ],
)
def test_a_secret_elsewhere_is_refused_at_load(lines: list[str]) -> None:
    found = problem(with_step(*lines, args=ARGS))
    assert found.code == "SECRET_MISPLACED", found


def test_the_place_of_a_secret_must_be_unambiguous() -> None:
    found = problem(with_step("command: cli x", "stdin: '{} ${token}'", args=ARGS))
    assert found.code == "BAD_SECRET"


def test_what_may_be_a_value_is_not_repeated() -> None:
    found = problem(with_step("command: cli x", "stdin: secret:hunter2/hunter2"))
    assert found.code == "BAD_SECRET"
    assert "hunter2" not in f"{found.message} {found.fix}"


def test_nested_arguments_of_a_tool_may_be_secret() -> None:
    action = step("command: mcp a.b", "with: {arguments: {auth: {key: '${token}'}}}", args=ARGS).action
    assert action.arguments == {"auth": {"key": Secret("", "token", "{}", 8)}}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "lines",
    [
        ["command: http https://x.y", "with: {headers: {Authorization: 'Bearer secret:env:KEY'}}"],
        ["command: cli x --token=secret:env:KEY"],
        ["command: cli x", "env: {A: 'x secret:github'}"],
        ["command: cli x", "stdin: '${name}secret:keyring:x'"],
        ["command: mcp a.b", "with: {arguments: {a: 'Bearer secret:env:KEY'}}"],
        ["command: llm", "llm: {model: m, prompt: 'use secret:env:KEY'}", "output: json"],
    ],
)
def test_a_handle_within_other_text_is_not_a_secret(lines: list[str]) -> None:
    found = problem(with_step(*lines, args="args: {name: x}\n"))
    assert found.code == "BAD_SECRET"
    assert "${secret:env:NAME}" in found.fix
    assert "KEY" not in found.message


@pytest.mark.parametrize(
    "text", ["client_secret:abc", "top secret: nothing", "the secret", "secret:/etc/x", "$${secret:env:KEY}"]
)
def test_other_mentions_of_secrets_are_plain_text(text: str) -> None:
    assert isinstance(step("command: cli x", f"stdin: 'a {text}'").stdin, Words)


def test_a_message_about_a_url_reads_well() -> None:
    found = problem(with_step("command: http https://x.y/${token}", args=ARGS))
    assert found.message == "the URL of steps.it.command contains a secret, which others could see there."


# --- many problems ---


def test_hints_end_before_the_problems_do() -> None:
    """Names are compared only for as many problems as a person may read."""
    unknown = [" ".join(f"${{longer_stp_name_{one}_{number}.stdout}}" for number in range(5)) for one in range(100)]
    lines = [f"  - {{id: longer_step_name_{number}, command: 'cli x {one}'}}\n" for number, one in enumerate(unknown)]
    found = problems("name: A\nsteps:\n" + "".join(lines))
    assert "Did you mean" in found[0].fix
    assert "Did you mean" not in found[-2].fix
    assert all("$$" in one.fix for one in found[:-1])


# --- texts ---


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=60))
def test_a_text_with_its_dollars_doubled_is_itself(text: str) -> None:
    import json

    doubled = text.replace("$", "$$")
    if not text.strip() or text.strip().startswith("secret:"):
        return
    document = json.dumps({"name": "A", "steps": [{"id": "a", "command": "cli x", "stdin": doubled}]})
    stdin = pipeline(document).steps[0].stdin
    assert isinstance(stdin, Words)
    assert as_written(stdin) == text


@pytest.mark.parametrize(
    "field",
    [
        "postcondition: {type: json_path, path: $.a, equals: [{b: 'v${first.json.a}'}]}",
        "output: {type: json, schema: {properties: {a: {const: '${name}'}}}}",
    ],
)
def test_a_reference_in_a_literal_field_is_refused(field: str) -> None:
    found = problem(with_step("command: cli x", field, args=ARGS))
    assert (found.code, found.line) == ("BAD_REFERENCE", 8)
    assert "contains a reference, which is not replaced here" in found.message


@pytest.mark.parametrize("text", ["$5", "a $name", "$HOME", "${HOME}", "${other.thing}", "$${name}", "$no.stdout", "$"])
def test_a_dollar_without_a_known_name_is_allowed_in_a_contract(text: str) -> None:
    made = step(
        "command: cli x",
        f"postcondition: {{type: json_path, path: $.a, equals: '{text}'}}",
        "output: {type: json, schema: {description: 'as ${name}', type: object}}",
        args=ARGS,
    )
    assert made.postcondition is not None
    assert made.postcondition.assertions[0].equals == text  # type: ignore[union-attr]


@pytest.mark.parametrize(("field", "name"), [("name", "name"), ("rollback_hint", "it.stdout")])
def test_a_reference_in_text_for_people_is_warned_about(field: str, name: str) -> None:
    (odd,) = warned(with_step("command: cli x", f"{field}: git tag -d ${{{name}}}", args=ARGS))
    assert (odd.code, odd.line) == ("NOT_REPLACED", 8)
    assert f"'${{{name}}}' is not replaced here" in odd.message
    assert warned(with_step("command: cli x", f"{field}: costs $5 for ${{nobody}}", args=ARGS)) == ()
