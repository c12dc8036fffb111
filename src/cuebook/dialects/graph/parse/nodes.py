"""Reads the nodes of a workflow: instructions, tools, outputs, requirements, evaluators and retries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, cast

from cuebook.dialects.graph.model import Evaluator, Match, Node, Requires, Retry, Rule, Source
from cuebook.dialects.graph.parse import sources
from cuebook.dialects.graph.paths import parse_path
from cuebook.formats.regex import UnsupportedRegex, compiled
from cuebook.formats.schema import flaws
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value

RESERVED = "input"
"""The name of the run's input in contexts. A node with this name would hide it."""
_RESERVED = {RESERVED: "it would hide the input", "(end)": "it marks the end of a run"}
"""Ids that no node can have, and why."""
MOVED = "'verify' was renamed to 'eval' in version 0.2 of the format."
MOVING = "Rename it to 'eval' and write a list of evaluators, each with a name, a kind and a rule."

_EVALUATOR = ("name", "kind", "rule", "rubric", "pass_when", "model")
_KINDS = ("value", "function", "judge")
_OF_JUDGES = ("rubric", "pass_when", "model")
_TOOL_RULES = ("any_tool_called", "all_tools_called", "no_tool_called")
_VALUE_RULES = ("output_required", "output_matches")
_OTHER = {"value": ("function", _TOOL_RULES), "function": ("value", _VALUE_RULES)}
"""For each kind, the other kind and the rules that only the other kind has."""
_POLICIES = ("all_pass", "any_pass", "weighted")
_NOWHERE = Source("inline", "")


def node(shape: Shape, id: str, value: Value, line: int) -> Node:
    at = f"nodes.{id}"
    if id in _RESERVED:
        fix = "Rename the node, and change the edges that refer to it."
        shape.wrong(line, f"A node cannot be called '{id}': {_RESERVED[id]}.", fix, "RESERVED_NODE_ID")
    if value.kind == "map" and "verify" in value.fields:
        shape.wrong(value.lines["verify"], f"{at}: {MOVED}", MOVING)
    fields = shape.closed(value, at, _READERS, ("name", "instruction"), ("verify",))
    read: dict[str, Any] = {"name": "", "instruction": _NOWHERE}
    for name, one in fields.items():
        if name in _READERS:
            read |= _READERS[name](shape, one, f"{at}.{name}")
    return Node(id, line=line, **read)


Reader = Callable[[Shape, Value, str], dict[str, Any]]
"""Reads one field of a node into fields of `Node`."""


def _max_turns(shape: Shape, value: Value, at: str) -> dict[str, Any]:
    return {"max_turns": shape.whole(value, at, 1)}


def _output(shape: Shape, value: Value, at: str) -> dict[str, Any]:
    if value.kind != "map":
        shape.closed(value, at, ())
        return {}
    before = len(shape.problems)
    schema = shape.plain(value, at)
    if len(shape.problems) == before:
        for code, why in flaws(schema):
            shape.wrong(value.line, f"{at} is not a usable JSON Schema: {why}.", "Correct it.", code)
    return {"output": schema}


def _tools(shape: Shape, value: Value, at: str) -> dict[str, Any]:
    fields = shape.closed(value, at, ("allow", "deny"))
    if value.kind == "map" and not fields.keys() & {"allow", "deny"}:
        shape.wrong(value.line, f"{at} has neither 'allow' nor 'deny'.", "Add one, or remove it.")
    return {name: shape.texts(fields[name], f"{at}.{name}", at_least=1) for name in ("allow", "deny") if name in fields}


def _policy(shape: Shape, value: Value, at: str) -> dict[str, Any]:
    policy = shape.choice(value, at, _POLICIES)
    if policy != _POLICIES[0]:
        fix = "Use all_pass, or remove it."
        shape.wrong(value.line, f"{at}: '{policy}' is not supported yet.", fix, "UNSUPPORTED_EVAL_POLICY")
    return {}


def _requires(shape: Shape, value: Value, at: str) -> dict[str, Any]:
    fields = shape.closed(value, at, (*_VALUE_RULES, "on_fail"))
    if value.kind == "map" and not fields.keys() & set(_VALUE_RULES):
        shape.wrong(value.line, f"{at} has neither 'output_required' nor 'output_matches'.", "Add one, or remove it.")
    on_fail = shape.choice(fields["on_fail"], f"{at}.on_fail", ("fail", "skip")) if "on_fail" in fields else "fail"
    return {"requires": Requires(**value_rules(shape, fields, at, of_nodes=True), on_fail=cast(Any, on_fail))}


def value_rules(shape: Shape, fields: Mapping[str, Value], at: str, *, of_nodes: bool) -> dict[str, Any]:
    """Reads `output_required` and `output_matches`, if present."""
    found: dict[str, Any] = {}
    if "output_required" in fields:
        found["output_required"] = paths(shape, fields["output_required"], f"{at}.output_required", of_nodes)
    if "output_matches" in fields:
        found["output_matches"] = matches(shape, fields["output_matches"], f"{at}.output_matches", of_nodes)
    return found


def _retry(shape: Shape, value: Value, at: str) -> dict[str, Any]:
    fields = shape.closed(value, at, ("max", "instruction"), ("max",))
    most = shape.whole(fields["max"], f"{at}.max", 1) if "max" in fields else None
    given = fields.get("instruction")
    mode, text = _retry_text(shape, given, f"{at}.instruction") if given is not None else ("default", "")
    return {"retry": Retry(most or 1, cast(Any, mode), text)}


def _retry_text(shape: Shape, value: Value, at: str) -> tuple[str, str]:
    if value.kind != "map":
        return "static", shape.text(value, at)
    fields = shape.closed(value, at, ("auto", "reflect"))
    if len(fields.keys() & {"auto", "reflect"}) != 1:
        shape.wrong(value.line, f"{at} must be a string, or have either 'auto' or 'reflect'.")
    elif "reflect" in fields:
        return "reflect", shape.text(fields["reflect"], f"{at}.reflect")
    elif not shape.flag(fields["auto"], f"{at}.auto") and fields["auto"].kind == "bool":
        shape.wrong(value.line, f"{at}.auto can only be true.", "Remove it for the default instruction.")
    return "auto", ""


# --- evaluators ---


def _eval(shape: Shape, value: Value, at: str) -> dict[str, Any]:
    items = shape.items(value, at, at_least=1)
    found = tuple(_evaluator(shape, one, f"{at}[{number}]") for number, one in enumerate(items))
    for name, times in Counter(one.name for one in found).items():
        if times > 1:
            fix = "Rename one of them: the name refers only to the last one."
            shape.odd(value.line, f"{at}: {times} evaluators are named '{name}'.", fix, "DUPLICATE_EVALUATOR")
    return {"eval": found}


def _evaluator(shape: Shape, value: Value, at: str) -> Evaluator:
    fields = shape.closed(value, at, _EVALUATOR, ("name", "kind"))
    given = fields.get("kind")
    kind = shape.choice(given, f"{at}.kind", _KINDS) if given is not None else _KINDS[0]
    known = given is not None and given.kind == "str" and given.text == kind
    texts = {name: shape.text(fields[name], f"{at}.{name}") for name in ("name", *_OF_JUDGES) if name in fields}
    if re.search(r"\s", texts.get("pass_when", "")):
        line, message = fields["pass_when"].line, f"{at}.pass_when must be one word without spaces."
        shape.wrong(line, message, "The judge's one-word verdict is compared with it.", "INVALID_PASS_WHEN")
    rule = _rule(shape, fields["rule"], f"{at}.rule", kind if known else "") if "rule" in fields else Rule()
    if known:
        _check_kind(shape, value, at, kind)
    return Evaluator(kind=cast(Any, kind), rule=rule, line=value.line, **({"name": ""} | texts))


def _check_kind(shape: Shape, value: Value, at: str, kind: str) -> None:
    """Checks the fields that a kind requires and the fields that it excludes."""
    needed, barred = ("rubric", ("rule",)) if kind == "judge" else ("rule", _OF_JUDGES)
    shape.needs(value, at, [needed])
    for name in barred:
        if name in value.fields:
            fix = "Only a judge can have it." if name != "rule" else "Describe in 'rubric' what it judges."
            shape.wrong(value.lines[name], f"{at}: an evaluator of kind '{kind}' cannot have '{name}'.", fix)


def _rule(shape: Shape, value: Value, at: str, kind: str) -> Rule:
    fields = shape.closed(value, at, (*_TOOL_RULES, *_VALUE_RULES))
    if value.kind == "map" and not fields:
        shape.wrong(value.line, f"{at} must not be empty.", "Add a rule.")
    other, strange = _OTHER.get(kind, ("", ()))
    for name in fields:
        if name in strange:
            fix = f"Move it to an evaluator of kind '{other}'."
            shape.wrong(value.lines[name], f"{at}.{name} does not apply to kind '{kind}'.", fix, "RULE_OF_OTHER_KIND")
    found = value_rules(shape, fields, at, of_nodes=False)
    for name in _TOOL_RULES:
        if name in fields:
            found[name] = shape.texts(fields[name], f"{at}.{name}", at_least=1)
    return Rule(**found)


def _texts(name: str, *, empty: bool = False) -> Reader:
    return lambda shape, value, at: {name: shape.texts(value, at, empty=empty)}


def _text(name: str) -> Reader:
    return lambda shape, value, at: {name: shape.text(value, at)}


_READERS: dict[str, Reader] = {
    "name": _text("name"),
    "instruction": lambda shape, value, at: {"instruction": sources.source(shape, value, at)},
    "skills": _texts("skills", empty=True),
    "output": _output,
    "max_turns": _max_turns,
    "model": _text("model"),
    "disallowed_tools": _texts("disallowed_tools"),
    "tools": _tools,
    "fail_soft": lambda shape, value, at: {"fail_soft": shape.flag(value, at)},
    "rules": lambda shape, value, at: {"rules": sources.of_node(shape, value, at)},
    "context": lambda shape, value, at: {"context": sources.of_node(shape, value, at)},
    "eval": _eval,
    "eval_policy": _policy,
    "judge_model": _text("judge_model"),
    "requires": _requires,
    "retry": _retry,
}


# --- conditions on values -----------------------------------------------------------------------------------


OPERATORS = ("equals", "in", "matches")


def paths(shape: Shape, value: Value, at: str, of_nodes: bool) -> tuple[str, ...]:
    found = shape.texts(value, at, at_least=1)
    for one in value.items:
        _check(shape, one, at, of_nodes)
    return found


def matches(shape: Shape, value: Value, at: str, of_nodes: bool) -> tuple[Match, ...]:
    items = shape.items(value, at, at_least=1)
    return tuple(_match(shape, one, f"{at}[{number}]", of_nodes) for number, one in enumerate(items))


def _match(shape: Shape, value: Value, at: str, of_nodes: bool) -> Match:
    fields = shape.closed(value, at, ("path", *OPERATORS), ("path",))
    path = shape.text(fields["path"], f"{at}.path") if "path" in fields else ""
    if path:
        _check(shape, fields["path"], at, of_nodes)
    operators = [name for name in OPERATORS if name in fields]
    if len(operators) != 1:
        if value.kind == "map":
            shape.wrong(value.line, f"{at} must have exactly one of equals, in and matches.")
        return Match(path, "equals", None)
    operator = operators[0]
    operand, where = fields[operator], f"{at}.{operator}"
    if operator == "in":
        shape.items(operand, where)
        return Match(path, "in", shape.plain(operand, where))
    if operator == "matches":
        return Match(path, "matches", _pattern(shape, operand, where))
    return Match(path, "equals", shape.plain(operand, where))


def _pattern(shape: Shape, value: Value, at: str) -> str:
    pattern = shape.text(value, at)
    if pattern:
        try:
            compiled(pattern)
        except UnsupportedRegex as why:
            shape.wrong(value.line, f"{at}: {why.message}", why.fix, "UNSUPPORTED_REGEX")
    return pattern


def _check(shape: Shape, value: Value, at: str, of_nodes: bool) -> None:
    """Warns about a malformed path, on which a check always fails."""
    said = parse_path(value.text, of_nodes) if value.kind == "str" and value.text else ""
    if isinstance(said, str) and said:
        fix = "Write name.name, with [*] after a list and all: or any: at the beginning."
        shape.odd(value.line, f"{at}: '{value.text[:60]}' is not a valid path: {said}.", fix, "MALFORMED_PATH")
