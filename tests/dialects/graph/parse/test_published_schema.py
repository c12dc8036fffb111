"""We accept the same workflows as the published schema, however they are changed, and no text does harm."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cuebook.dialects.graph.parse import Parsed, read
from tests.dialects.graph.samples import DATA, FULL, MINIMAL, OWN, PUBLISHED, beside, plain, read_plain
from tests.support.sampling import many

WHOLE = [plain(text) for text in (MINIMAL, FULL, *(path.read_text(encoding="utf-8") for path in PUBLISHED))]
BREW, LOOK, JUDGE = WHOLE[0], WHOLE[1]["nodes"]["look"], WHOLE[1]["nodes"]["judge-it"]
LEVELS = [
    {**BREW, "inputs": WHOLE[1]["inputs"]},
    {**BREW, "skills": WHOLE[1]["skills"]},
    {**BREW, "rules": WHOLE[1]["rules"], "context": WHOLE[1]["context"]},
    {**BREW, "edges": [{"from": "brew", "to": "brew", "when": "so", "max_iterations": 2}]},
    *(
        {**BREW, "nodes": {"brew": {**BREW["nodes"]["brew"], name: node[name]}}}
        for node in (LOOK, JUDGE)
        for name in ("eval", "requires", "retry", "tools", "context")
        if name in node
    ),
]
"""Small documents, so that every level is changed often."""
DOCUMENTS = [*WHOLE, *LEVELS]

NAMES = [
    "id", "name", "entry", "nodes", "edges", "description", "skills", "rules", "context", "workflow_type", "model",
    "judge_model", "judge_budget", "inputs", "instruction", "output", "max_turns", "disallowed_tools", "tools",
    "fail_soft", "eval", "eval_policy", "requires", "retry", "from", "to", "when", "max_iterations", "mcp", "command",
    "url", "args", "headers", "env", "type", "default", "enum", "required", "allow", "deny", "kind", "rule", "rubric",
    "pass_when", "only", "sources", "inline", "file", "auto", "reflect", "max", "path", "equals", "in", "matches",
    "output_required", "output_matches", "any_tool_called", "all_tools_called", "no_tool_called", "on_fail", "x",
]  # fmt: skip
SCALARS = [
    None, True, False, 0, 1, -1, 2.0, 1.5, 10**30, "", "a", "look", "yes", "string", "number", "boolean", "string[]",
    "value", "function", "judge", "all_pass", "any_pass", "generic", "stdio", "http", "fail", "skip", "./a", "https://a.b",
]  # fmt: skip
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, except the root and the places below our own key."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for name, one in inside:
        if (*path, name) != ("x_cuebook",):
            found += [(*path, name), *places(one, (*path, name))]
    return found


def mutated(chance: random.Random) -> dict[str, Any]:
    """A valid workflow with a few values replaced, removed, inserted or copied from other places."""
    document: dict[str, Any] = copied(chance.choice(DOCUMENTS))
    for _ in range(chance.randint(1, 3)):
        every = places(document)
        if not every:
            break
        *parents, last = chance.choice(every)
        inside = at(document, parents)
        match chance.choice(["replace", "take out", "put in", "copy", "borrow"]):
            case "replace":
                inside[last] = anything(chance)
            case "take out":
                del inside[last]
            case "put in" if isinstance(inside[last], dict):
                inside[last][chance.choice(NAMES)] = anything(chance)
            case "put in" if isinstance(inside[last], list):
                inside[last].append(anything(chance))
            case "borrow" if isinstance(inside[last], dict):
                beside = [
                    one for one in (inside.values() if isinstance(inside, dict) else inside) if isinstance(one, dict)
                ]
                fields = [field for one in beside for field in one.items()]
                inside[last] |= copied(dict([chance.choice(fields)])) if fields else {}
            case "copy":
                inside[last] = copied(at(document, chance.choice(every)))
    return document


def at(value: Any, path: Sequence[Any]) -> Any:
    for part in path:
        value = value[part]
    return value


def copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def anything(chance: random.Random, deep: int = 0) -> Any:
    kind = chance.randrange(6 if deep < 2 else 4)
    if kind == 4:
        return [anything(chance, deep + 1) for _ in range(chance.randrange(3))]
    if kind == 5:
        return {chance.choice(NAMES): anything(chance, deep + 1) for _ in range(chance.randrange(4))}
    return chance.choice(SCALARS)


@cache
def published() -> Draft202012Validator:
    return Draft202012Validator(json.loads((DATA / "schemas/workflow.json").read_text(encoding="utf-8")))


def schema_codes(parsed: Parsed) -> set[str]:
    return {one.code for one in parsed.errors}


@beside
@settings(max_examples=many(100, 400), deadline=None)
@given(st.integers(0, 2**40))
def test_our_verdict_is_the_published_schemas(seed: int) -> None:
    assert_same_verdict(mutated(random.Random(seed)))


@beside
@pytest.mark.parametrize(
    "field",
    [
        {"skills": {"s": {"instruction": ""}}},
        {"inputs": {"a": {"type": "number", "required": True, "default": None}}},
        {"inputs": {"a": {"required": True, "default": None}}},
        {"nodes": {}},
    ],
)
def test_nor_do_they_differ_at_the_edges(field: dict[str, Any]) -> None:
    assert_same_verdict({**BREW, **field})


def assert_same_verdict(document: dict[str, Any]) -> None:
    flaws = [error.message for error in published().iter_errors(document)]
    found = {one.code: one.message for one in read_plain(document).errors}
    if flaws:
        # An empty inline skill has its own code in the format.
        assert found.keys() & {"SCHEMA", "INVALID_INLINE_SKILL"}, flaws
    else:
        assert "SCHEMA" not in found, found


@beside
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_an_example_of_ours_is_valid_elsewhere_too(path: Path) -> None:
    assert published().is_valid(plain(path.read_text(encoding="utf-8")))


PIECES = [line + "\n" for text in (FULL, MINIMAL) for line in text.splitlines()] + [
    "nodes:\n", "edges: [\n", "  ", "- ", "{", "}", "&a ", "*a", "!!str ", "|\n", "x_cuebook:\n", "verify: 1\n", "~\n", "\0", "\ud800",
]  # fmt: skip


@settings(max_examples=many(75, 300), deadline=None)
@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join),
    st.sampled_from(["a.yml", "a.json"]),
)
def test_any_text_is_a_workflow_or_is_refused(text: str, name: str) -> None:
    assert_read(read(text, name))


@settings(max_examples=many(75, 300), deadline=None)
@given(st.dictionaries(st.sampled_from([*NAMES, "x_cuebook", "verify", "guards", "fan_out"]), VALUES, max_size=8))
def test_any_values_are_a_workflow_or_are_refused(document: dict[str, Any]) -> None:
    assert_read(read_plain(document))


@settings(max_examples=many(50, 200), deadline=None)
@given(st.data())
def test_a_real_text_that_was_damaged_is_read_or_refused(data: st.DataObject) -> None:
    text = FULL
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 30))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=3)) + text[end:]
    assert_read(read(text, "a.yml"))


EXTENSION_NAMES = st.sampled_from([
    "guards", "fan_out", "nodes", "on_failure", "max_steps", "router_model", "edge", "from", "to", "join", "node", "path",
    "output_required", "output_matches", "equals", "tell", "look", "approval", "budget", "tokens", "money", "context",
    "max_concurrency", "matches", "in", "effort",
])  # fmt: skip
EXTENSION = st.recursive(
    st.sampled_from([*SCALARS, "tell", "again", "judge-it", "look.found", "halt", "(?=a)"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(EXTENSION_NAMES, inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=many(75, 300), deadline=None)
@given(EXTENSION)
def test_any_extension_is_read_or_refused(extension: Any) -> None:
    parsed = read_plain({**DOCUMENTS[1], "x_cuebook": extension})
    assert_read(parsed)
    assert "SCHEMA" not in schema_codes(parsed)


def assert_read(parsed: Parsed) -> None:
    assert (parsed.workflow is None) == bool(parsed.errors)
    for problem in (*parsed.errors, *parsed.warnings, *parsed.notes):
        assert problem.line is not None
        assert problem.line >= 1
        assert problem.message
        assert problem.code


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_documents_that_are_changed_are_valid(document: dict[str, Any]) -> None:
    assert read_plain(document).errors == ()
