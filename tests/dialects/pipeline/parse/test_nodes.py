"""Steps for nodes in a pipeline, and the mistakes that are reported with their line."""

from __future__ import annotations

import pytest

from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.pipeline.check import beyond_format, check
from cuebook.dialects.pipeline.describe import doing
from cuebook.dialects.pipeline.model import NodeCall, Pipeline
from cuebook.dialects.pipeline.parse import parse
from cuebook.dialects.pipeline.run.action import Given, acting
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.kernel.effects import CallNode, SecretUse


def document(command: str, more: str = "") -> str:
    return f"name: N\nargs: {{a: {{default: x}}}}\nsteps:\n  - id: a\n    command: {command}\n{more}"


def effect(command: str, more: str = "") -> CallNode:
    pipeline: Pipeline = parse(document(command, more), "p.yml")
    made = acting(pipeline.steps[0], Scope(pipeline, {"a": "x"}), Given(), {}, "")
    assert isinstance(made, CallNode)
    return made


def test_words_and_with_make_the_same_call() -> None:
    in_words = effect("""node files write path=${a}.txt 'lines:=["1"]' key=secret:env:KEY""", "    node: shop\n")
    in_fields = effect(
        "node files write",
        "    node: shop\n    with: {arguments: {path: '${a}.txt', lines: ['1'], key: 'secret:env:KEY'}}\n",
    )
    assert in_words == in_fields
    assert (in_words.node, in_words.arguments) == ("shop", {"path": "x.txt", "lines": ["1"]})
    assert in_words.secrets == (SecretUse("arguments.key", "env:KEY"),)
    assert in_words.subject == "shop files write"


def test_a_step_says_what_is_true_of_its_action() -> None:
    made = effect("node door open", "    timeout_ms: 1500\n    idempotent: true\n    node: '${a}'\n")
    assert (made.node, made.timeout, made.idempotent, made.reads_only) == ("x", 1.5, True, False)
    assert effect("node door look", "    effect: read\n").reads_only
    pipeline = parse(document("node door open", "    node: shop\n"), "p.yml")
    assert doing(pipeline.steps[0]) == "node door open on shop"
    assert pipeline.steps[0].action == NodeCall("door", "open")


@pytest.mark.parametrize(
    ("command", "more", "code"),
    [
        ("node", "", "BAD_COMMAND"),
        ("node door", "", "BAD_COMMAND"),
        ("node door k=v", "", "BAD_COMMAND"),
        ("node door/x open", "", "BAD_COMMAND"),
        ("node door open far", "", "BAD_COMMAND"),
        ("node door open a=1 a=2", "", "BAD_COMMAND"),
        ("node door open a:=x", "", "BAD_COMMAND"),
        ("node door open", "    with: {argument: {}}\n", "SCHEMA"),
        ("node door open", "    cwd: x\n", "NOT_OF_THIS_STEP"),
        ("cli door open", "    node: shop\n", "NOT_OF_THIS_STEP"),
        ("node door open", "    idempotent: 1\n", "SCHEMA"),
        ("node door open", "    node: $b.stdout\n", "UNKNOWN_REFERENCE"),
    ],
)
def test_a_mistake_is_reported_with_its_line(command: str, more: str, code: str) -> None:
    found = [(one.code, one.line) for one in check(document(command, more), "p.yml") if one.severity == "error"]
    assert found
    assert found[0][0] == code, found
    assert found[0][1] in (5, 6)


def test_only_the_command_is_part_of_the_published_format() -> None:
    found = beyond_format(parse(document("node a b", "    node: shop\n    idempotent: true\n"), "p.yml"))
    assert [one.message.split("'")[3] for one in found] == ["node", "idempotent"]


def test_a_node_that_is_not_paired_is_a_warning_where_the_store_can_be_read() -> None:
    class Machine(Surroundings):
        def nodes(self) -> frozenset[str] | None:
            return frozenset({"shop"})

    def found(name: str, around: Surroundings) -> list[tuple[str, int | None]]:
        text = document("node door open", f"    node: {name}\n")
        return [(one.code, one.line) for one in check(text, "p.yml", around) if one.severity == "warning"]

    assert found("barn", Machine()) == [("UNKNOWN_NODE", 4)]
    assert found("shop", Machine()) == found("'${a}'", Machine()) == found("barn", Surroundings()) == []
