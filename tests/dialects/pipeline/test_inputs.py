"""Arguments: declarations, values of a run, and the conversion of command-line text."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.dialect import Dialect
from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.pipeline import PIPELINE, Pipelines
from cuebook.dialects.pipeline.inputs import handle_of
from cuebook.kernel.errors import BadInput
from tests.dialects.pipeline.samples import FULL, MINIMAL, pipeline, problem, with_step

STEP = "steps:\n  - id: a\n    command: cli x\n"


def declaring(args: str) -> str:
    return f"name: A\nargs: {args}\n{STEP}"


def accept(args: str, given: dict[str, Any]) -> dict[str, Any]:
    return PIPELINE.accept(pipeline(declaring(args)), given)


def refused(args: str, given: dict[str, Any]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        accept(args, given)
    assert caught.value.fix
    return caught.value


def test_declared_arguments_are_listed() -> None:
    told = {one.name: (one.type, one.required, one.default, one.options) for one in pipeline(FULL).inputs}
    assert told == {
        "version": ("string", True, None, ()),
        "token": ("secret", False, "env:HOOK_TOKEN", ()),
        "count": ("integer", False, "3", ("1", "2", "3")),
        "draft": ("boolean", False, None, ()),
    }


@pytest.mark.parametrize(
    ("args", "given", "accepted"),
    [
        ("{a: {default: x}}", {}, {"a": "x"}),
        ("{a: x, b: 3, c: [1], d: true}", {}, {"a": "x", "b": 3, "c": [1], "d": True}),
        ("{a: , b: {}}", {"b": 1, "a": 2}, {"a": 2, "b": 1}),
        ("{a: {required: false}}", {}, {"a": None}),
        ("{a: {default: x}}", {"a": None}, {"a": "x"}),
        ("{a: {default: x}}", {"a": 5}, {"a": 5}),
        ("{a: {type: integer}}", {"a": 5.0}, {"a": 5.0}),
        ("{a: {type: array}}", {"a": (1, 2)}, {"a": [1, 2]}),
        ("{a: {type: object, default: {x: 1}}}", {}, {"a": {"x": 1}}),
        ("{a: {enum: [1, true]}}", {"a": True}, {"a": True}),
        ("{a: {secret: true}}", {"a": "env:TOKEN"}, {"a": "env:TOKEN"}),
        ("{a: {secret: true, type: string}}", {"a": "secret:github"}, {"a": "secret:github"}),
    ],
)
def test_how_given_values_are_accepted(args: str, given: dict[str, Any], accepted: dict[str, Any]) -> None:
    assert accept(args, given) == accepted
    assert accept(args, accepted) == accepted


@pytest.mark.parametrize(
    ("args", "given", "said"),
    [
        ("{a: }", {}, "Missing input: a (any)"),
        ("{a: {type: string}, b: {secret: true}}", {}, "Missing inputs: a (string), b (secret)"),
        ("{a: {type: string}}", {"a": 5}, "a must be a text, not 5"),
        ("{a: {type: number}}", {"a": True}, "a must be a number, not true"),
        ("{a: {type: integer}}", {"a": 1.5}, "a must be a whole number"),
        ("{a: {type: boolean}}", {"a": "true"}, "a must be true or false"),
        ("{a: {type: object}}", {"a": []}, "a must be an object"),
        ("{a: {type: array}}", {"a": "x"}, "a must be a list"),
        ("{a: {enum: [x, y]}}", {"a": "z"}, 'a must be one of "x", "y"'),
        ("{a: {enum: [1]}}", {"a": True}, "a must be one of 1"),
        ("{a: {}}", {"a": float("inf")}, "cannot be represented in JSON"),
        ("{a: {type: integer}}", {"a": float("inf")}, "cannot be represented in JSON"),
        ("{a: {}}", {"a": "\ud800"}, "cannot be represented in JSON"),
        ("{a: {default: x}}", {"b": 1}, "'b' is not declared"),
    ],
)
def test_all_invalid_values_are_reported_at_once(args: str, given: dict[str, Any], said: str) -> None:
    assert said in refused(args, given).message


def test_a_secret_argument_shares_no_variable_with_another() -> None:
    assert accept("{a-b: x, a_b: {secret: true}}", {"a_b": "env:A"}) == {"a-b": "x", "a_b": "env:A"}


def test_a_similar_name_is_suggested() -> None:
    assert refused("{topic: x}", {"tpoic": 1}).fix == "Did you mean 'topic'?"


def test_a_secret_argument_accepts_a_handle_and_never_a_value() -> None:
    for value in ("hunter2hunter2", "env:", "secret:a b", 5, "vault:x"):
        error = refused("{token: {secret: true}}", {"token": value})
        assert "must be the handle of a secret" in error.message
        assert str(value) not in error.message.replace("env:NAME", "")


@pytest.mark.parametrize(
    ("value", "handle"),
    [("secret:github", "github"), ("env:A", "env:A"), ("secret:env:A", "env:A"), ("github", None), (None, None)],
)
def test_how_a_handle_is_recognised(value: Any, handle: str | None) -> None:
    assert handle_of(value) == handle


@pytest.mark.parametrize(
    ("args", "line", "code"),
    [
        ("[a]", 2, "SCHEMA"),
        ("{a: {typ: string}}", 2, "SCHEMA"),
        ("{a: {type: text}}", 2, "SCHEMA"),
        ("{a b: x}", 2, "BAD_ARG"),
        ("{1a: x}", 2, "BAD_ARG"),
        ("{a-b: x, a_b: y}", 2, "BAD_ARG"),
        ("{a: x, A: y}", 2, "BAD_ARG"),
        ("{a: {required: true, default: 1}}", 2, "BAD_ARG"),
        ("{a: {type: string, default: 1}}", 2, "BAD_ARG"),
        ("{a: {type: string, enum: [x, 1]}}", 2, "BAD_ARG"),
        ("{a: {enum: [x], default: y}}", 2, "BAD_ARG"),
        ("{a: {enum: []}}", 2, "SCHEMA"),
        ("{a: {secret: true, type: number}}", 2, "BAD_ARG"),
        ("{a: {secret: true, default: hunter2hunter2}}", 2, "BAD_SECRET"),
        ("{a: {default: .inf}}", 2, "NOT_FINITE"),
    ],
)
def test_an_invalid_declaration_is_refused(args: str, line: int, code: str) -> None:
    found = problem(declaring(args))
    assert (found.line, found.code) == (line, code), found
    assert "hunter2" not in found.message


@pytest.mark.parametrize(
    ("args", "text", "value"),
    [
        ("{a: {type: string}}", "5", "5"),
        ("{a: {type: number}}", "5", 5),
        ("{a: {type: number}}", "five", "five"),
        ("{a: {type: integer}}", "5.5", "5.5"),
        ("{a: {type: boolean}}", "true", True),
        ("{a: {type: array}}", '["x", 1]', ["x", 1]),
        ("{a: {type: object}}", '{"x": 1}', {"x": 1}),
        ("{a: 3}", "5", 5),
        ("{a: false}", "true", True),
        ("{a: x}", "5", "5"),
        ("{a: }", "5", "5"),
        ("{a: {secret: true}}", "env:A", "env:A"),
    ],
)
def test_how_text_is_converted(args: str, text: str, value: Any) -> None:
    made = PIPELINE.typed(pipeline(declaring(args)), "a", text)
    assert made == value
    assert type(made) is type(value)


def test_only_declared_arguments_are_accepted() -> None:
    made = pipeline(declaring("{a: x}"))
    assert PIPELINE.takes(made, "a")
    assert not PIPELINE.takes(made, "b")


# --- what a person changes ---

GIVING = with_step(
    "command: cli x",
    "output: {type: json, schema: {type: object, required: [n]}}",
    args="args: {count: 3, level: {type: integer, enum: [1, 2]}}\n",
)


@pytest.mark.parametrize(
    ("name", "text", "value"), [("count", "5", 5), ("first", "any text", "any text"), ("it", '{"n": 1}', {"n": 1})]
)
def test_values_that_a_person_may_change(name: str, text: str, value: Any) -> None:
    assert PIPELINE.changed(pipeline(GIVING), {}, name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("it", "no json", "must be JSON"),
        ("it", "{}", "does not match"),
        ("level", "high", "level must be a whole number"),
        ("level", "3", "level must be one of 1, 2"),
        ("frist", "x", "There is no argument or step named 'frist'"),
    ],
)
def test_values_that_a_person_may_not_change(name: str, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        PIPELINE.changed(pipeline(GIVING), {}, name, text)


# --- the options of a run ---


def test_the_dialect_reports_its_capabilities() -> None:
    assert PIPELINE.typed_inputs
    for method in ("unfit", "typed", "takes", "unverified"):
        assert getattr(Pipelines, method) is not getattr(Dialect, method)


@pytest.mark.parametrize("cwd", ["/etc", "..", "a/../..", "~", "C:\\x", "a\\..\\b"])
def test_a_folder_outside_the_workspace_is_refused(cwd: str) -> None:
    with pytest.raises(BadInput, match="The option 'cwd'"):
        PIPELINE.unfit(pipeline(MINIMAL), {"cwd": cwd})


def test_fields_beyond_the_format_can_be_refused() -> None:
    assert PIPELINE.unfit(pipeline(FULL), {"cwd": "a/b"}) == ()
    assert PIPELINE.unfit(pipeline(MINIMAL), {"strict_spec": True}) == ()
    found = PIPELINE.unfit(pipeline(FULL), {"strict_spec": True})
    made = pipeline(FULL)
    beyond = [*(arg.beyond for arg in made.args.values()), *(step.beyond for step in made.steps)]
    assert len(found) == sum(map(len, beyond))
    assert "'retry', which is not in the published format" in " ".join(one.message for one in found)


@pytest.mark.parametrize("args", ["{a: 1}", "{a: }", "{a: {default: 1}}", "{a: {}}"])
def test_an_argument_with_a_default_is_within_the_format(args: str) -> None:
    assert PIPELINE.unfit(pipeline(declaring(args)), {"strict_spec": True}) == ()


@pytest.mark.parametrize("field", ["type: integer", "enum: [1]", "required: false", "secret: true", "description: x"])
def test_a_typed_argument_goes_beyond_the_format(field: str) -> None:
    (found,) = PIPELINE.unfit(pipeline(declaring(f"{{a: {{{field}}}}}")), {"strict_spec": True})
    assert found.message == f"The argument 'a' has '{field.partition(':')[0]}', which is not in the published format."
    assert found.line == 2


def test_a_run_that_violates_its_options_does_not_start() -> None:
    from cuebook.kernel.run import Settings
    from cuebook.service.start import options_of

    made = pipeline(FULL)
    with pytest.raises(InvalidPlaybook, match="strict-spec"):
        options_of(PIPELINE, made, "a.yml", Settings(options={"strict_spec": True}))
    with pytest.raises(BadInput, match="cwd"):
        options_of(PIPELINE, made, "a.yml", Settings(options={"cwd": "/etc"}))
    with pytest.raises(BadInput, match="It must be a single line of text"):
        options_of(PIPELINE, made, "a.yml", Settings(options={"cwd": "a\nb"}))
    assert options_of(PIPELINE, made, "a.yml", Settings(options={"cwd": "a/b", "max_output": 5})) == {
        "cwd": "a/b",
        "max_output": 5,
    }
