"""Schemas in strict mode obey the rules that the provider publishes; other schemas go into the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cuebook.dialects.graph.run.route import _schema as routing_schema
from cuebook.kernel.effects import AskModel, ToolSpec
from cuebook.kernel.outcomes import Failed, Reply
from cuebook.performers.models import ModelPerformer
from cuebook.performers.models.providers import Providers
from cuebook.performers.models.scripted import ScriptedModel
from tests.performers.models.calls import Observer, Sleeper, ask, failure_of, providers_at, reply_of
from tests.performers.models.protocols.strict_mode_rules import anthropic_flaws, openai_flaws
from tests.performers.models.provider_server import Answer, ProviderServer, anthropic_reply, openai_reply

REPLIES: dict[str, Callable[..., Answer]] = {"openai": openai_reply, "anthropic": anthropic_reply}
FLAWS = {"openai": openai_flaws, "anthropic": anthropic_flaws}


def nested_alternatives(depth: int) -> dict[str, Any]:
    parts = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**parts, f"d{depth}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def thing(required: Any = None, **properties: Any) -> dict[str, Any]:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names}


TEXT = {"type": "string"}
TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
    "$defs": {"node": thing(value=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/node"}})},
}

DEEP: dict[str, Any] = TEXT
for _ in range(11):
    DEEP = thing(a=DEEP)

BOTH, OPENAI, ANTHROPIC, NONE = {"openai", "anthropic"}, {"openai"}, {"anthropic"}, set[str]()

TABLE: dict[str, tuple[dict[str, Any], Any, set[str]]] = {
    "a routing question": (routing_schema(["fix", "fix_all", "none"]), {"choice": "fix", "reason": "x"}, BOTH),
    "an object that says nothing of more": (thing(city=TEXT), {"city": "Rome"}, BOTH),
    "a text or null": (thing(a={"type": ["string", "null"], "minLength": 1}), {"a": None}, BOTH),
    "an object or null": (thing(a={**thing(b=TEXT), "type": ["object", "null"]}), {"a": {"b": ""}}, BOTH),
    "a nullable choice": (thing(a={"type": ["string", "null"], "enum": ["x", None]}), {"a": None}, BOTH),
    "a choice of mixed values": (thing(a={"enum": ["x", 1, 1.5, True, None]}), {"a": 1.5}, BOTH),
    "a constant": (thing(a={"const": "x"}, b={"type": "number", "const": 1}), {"a": "x", "b": 1}, BOTH),
    "bounds": (thing(a={"type": "integer", "minimum": 1, "maximum": 9}), {"a": 4}, BOTH),
    "lengths and patterns": (thing(a={"type": "string", "maxLength": 3, "pattern": "^a"}), {"a": "ab"}, BOTH),
    "formats": (thing(a={"type": "string", "format": "uri"}, b={"type": "string", "format": "x"}), {"a": "", "b": ""}, BOTH),
    "many items": (thing(a={"type": "array", "items": TEXT, "minItems": 2, "uniqueItems": True}), {"a": ["x", "y"]}, BOTH),
    "defaults and examples": (thing(a={**TEXT, "default": "x", "examples": ["y"]}), {"a": "x"}, BOTH),
    "one of several": (thing(a={"oneOf": [thing(b=TEXT), {"type": "array", "items": TEXT}]}), {"a": ["x"]}, BOTH),
    "definitions": ({**thing(a={"$ref": "#/definitions/t"}), "definitions": {"t": TEXT}}, {"a": "x"}, BOTH),
    "a condition beside the object": ({**thing(a=TEXT), "not": {"required": ["b"]}}, {"a": "x"}, BOTH),
    "words about it": (thing(a={**TEXT, "description": "A.", "maxLength": 2}), {"a": "x"}, BOTH),
    "nothing at all": ({"type": "object", "properties": {}, "additionalProperties": False}, {}, BOTH),
    "a property that may be missing": (thing(["a"], a=TEXT, b=TEXT), {"a": "x"}, ANTHROPIC),
    "a list at the top": ({"type": "array", "items": TEXT}, ["x"], ANTHROPIC),
    "a schema that refers to itself": (TREE, {"root": {"value": "x", "children": []}}, OPENAI),
    "very many may be missing": (thing([], **{f"p{n}": TEXT for n in range(25)}), {"p1": "x"}, NONE),
    "very many alternatives": (thing(**{f"p{n}": {"type": ["string", "null"]} for n in range(17)}),
                               {f"p{n}": None for n in range(17)}, OPENAI),
    "too many values": (thing(a={"enum": [f"v{n}" for n in range(1_001)]}), {"a": "v1"}, ANTHROPIC),
    "too long values": (thing(a={"enum": [f"{n:070}" for n in range(251)]}), {"a": f"{1:070}"}, ANTHROPIC),
    "too deep": (DEEP, None, ANTHROPIC),
    "a free table": (thing(stats={"type": "object"}), {"stats": {"n": 1}}, NONE),
    "a free table at the top": ({"type": "object"}, {"n": 1}, NONE),
    "a table of numbers": (thing(a={"type": "object", "additionalProperties": {"type": "number"}}), {"a": {"n": 1}}, NONE),
    "open with names": ({**thing(a=TEXT), "additionalProperties": True}, {"a": "x", "b": 1}, NONE),
    "names by pattern": (thing(a={"type": "object", "patternProperties": {"^x": TEXT}}), {"a": {"x1": "y"}}, NONE),
    "a property without a type": (thing(a={}), {"a": [1]}, NONE),
    "only words about a property": (thing(a={"description": "Anything."}), {"a": {"b": 1}}, NONE),
    "anything goes": (thing(a=True), {"a": 1}, NONE),
    "a list of anything": (thing(a={"type": "array"}), {"a": [1, "x"]}, NONE),
    "a pair": (thing(a={"type": "array", "prefixItems": [TEXT, TEXT]}), {"a": ["x", "y"]}, NONE),
    "all of several": (thing(a={"allOf": [thing(b=TEXT), thing(c=TEXT)]}), {"a": {"b": "x", "c": "y"}}, NONE),
    "properties by condition": ({**thing(["a"], a=TEXT), "if": {"required": ["b"]}, "then": thing(b=TEXT)}, {"a": "x"}, NONE),
    "a choice of objects": (thing(a={"enum": [{"b": 1}]}), {"a": {"b": 1}}, NONE),
    "a property that is not declared": ({"type": "object", "properties": {}, "required": ["a"]}, {"a": 1}, NONE),
}  # fmt: skip


def sent_schema(protocol: str, request: dict[str, Any]) -> dict[str, Any] | None:
    """The schema that was sent in the provider's strict mode."""
    if protocol == "anthropic":
        found: dict[str, Any] | None = request.get("output_config", {}).get("format", {}).get("schema")
        return found
    given = request.get("response_format", {}).get("json_schema", {})
    return given["schema"] if given.get("strict") else None


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_what_is_sent_in_strict_mode_obeys_the_published_rules(protocol: str) -> None:
    replies = [json.dumps(value) for _, value, _ in TABLE.values()]
    async with ProviderServer(*(REPLIES[protocol](reply) for reply in replies)) as server:
        providers = providers_at(server.url, protocol)
        performer = ModelPerformer(providers, sleep=Sleeper())
        for name, (schema, value, strictly) in TABLE.items():
            before = json.dumps(schema)
            effect = AskModel(prompt="x", schema=schema, lenient=value is None)
            outcome = await performer.perform(effect, Observer().call(model="test/claude-test-9"))
            assert isinstance(outcome, Reply), (name, outcome)
            assert json.loads(outcome.text) == value, name
            sent = sent_schema(protocol, server.requests[-1])
            assert (sent is not None) == (protocol in strictly), name
            assert sent is None or FLAWS[protocol](sent) == [], name
            assert json.dumps(schema) == before, "the author's schema is left alone"


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_what_strict_mode_cannot_say_is_checked_all_the_same(protocol: str) -> None:
    effect = AskModel(prompt="x", schema=thing(a={"type": "string", "maxLength": 2}))
    async with ProviderServer(REPLIES[protocol]('{"a": "long"}')) as server:
        failed = await failure_of(providers_at(server.url, protocol), effect, model="test/claude-test-9")
    assert failed.code == "schema_mismatch"
    sent = sent_schema(protocol, server.requests[0]) or {}
    assert "maxLength" in sent["properties"]["a"]["description"]


async def test_anthropic_is_asked_in_words_for_what_its_strict_mode_cannot_say() -> None:
    effect = AskModel(prompt="x", schema=thing(stats={"type": "object"}))
    async with ProviderServer(anthropic_reply('{"stats": {"n": 1}}')) as server:
        reply = await reply_of(providers_at(server.url, "anthropic"), effect, model="test/claude-test-9")
    assert reply.text == '{"stats": {"n": 1}}'
    assert "output_config" not in server.requests[0]
    assert '"stats"' in server.requests[0]["system"][0]["text"]


TOOLS: dict[str, dict[str, Any]] = {
    "no type": {"properties": {"a": TEXT}},
    "nothing": {},
    "alternatives": {"type": "object", "anyOf": [thing(a=TEXT), thing(b=TEXT)], "properties": {"a": TEXT}},
    "a list of anything": thing(items={"type": "array"}, properties={"type": ["array", "null"]}, enum=TEXT),
}


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_parameters_of_tools_are_objects_whose_lists_say_what_they_hold(protocol: str) -> None:
    tools = tuple(ToolSpec(f"t{n}", "A tool.", parameters) for n, parameters in enumerate(TOOLS.values()))
    async with ProviderServer(REPLIES[protocol]("ok")) as server:
        await reply_of(providers_at(server.url, protocol), AskModel(prompt="x", tools=tools))
    lists: list[dict[str, Any]] = []
    for given in server.requests[0]["tools"]:
        parameters = given["input_schema"] if protocol == "anthropic" else given["function"]["parameters"]
        assert parameters["type"] == "object"
        assert not {"anyOf", "oneOf", "allOf", "enum", "not"} & set(parameters)
        lists += [one for one in parameters["properties"].values() if "array" in one.get("type", ())]
        assert not given.get("strict")
    assert [one["items"] for one in lists] == [{}, {}]


# --- a provider that refuses a schema -----------------------------------------------------------------

REFUSAL = "Invalid schema for response_format 'reply': In context=('properties', 'a'), schema must have a 'type' key."


def refusing(message: str, protocol: str = "openai") -> Answer:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return Answer(status=400, body={"error": error} if protocol == "openai" else {"type": "error", "error": error})


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_refused_schema_moves_to_the_prompt_with_a_warning(protocol: str) -> None:
    said = REFUSAL if protocol == "openai" else "output_config.format.schema: too complex"
    observer, sleeper = Observer(), Sleeper()
    effect = AskModel(prompt="x", schema=thing(a=TEXT))
    fenced = REPLIES[protocol]('```json\n{"a": "x"}\n```')
    async with ProviderServer(refusing(said, protocol), fenced, REPLIES[protocol]('{"a": "y"}')) as server:
        performer = ModelPerformer(providers_at(server.url, protocol), sleep=sleeper)
        call = observer.call(model="test/claude-test-9")
        first, second = [await performer.perform(effect, call) for _ in range(2)]
    assert isinstance(first, Reply)
    assert (first.text, first.retries, sleeper.slept) == ('{"a": "x"}', 0, [])
    assert isinstance(second, Reply)
    assert [code for code, _ in observer.warnings] == ["schema_refused"]
    assert said in observer.warnings[0][1]
    assert [("output_config" if protocol == "anthropic" else "response_format") in one for one in server.requests] == [
        True,
        False,
        False,
    ]
    assert "JSON Schema" in json.dumps(server.requests[1])


async def test_a_reply_without_the_schema_is_still_held_to_it() -> None:
    async with ProviderServer(refusing(REFUSAL), openai_reply('{"a": 1}')) as server:
        failed = await failure_of(providers_at(server.url), AskModel(prompt="x", schema=thing(a=TEXT)))
    assert (failed.code, len(server.requests)) == ("schema_mismatch", 2)


async def test_a_schema_is_given_up_once_and_a_refused_tool_or_prompt_is_a_failure() -> None:
    effect = AskModel(prompt="x", schema=thing(a=TEXT))
    async with ProviderServer(refusing(REFUSAL), refusing(REFUSAL)) as server:
        failed = await failure_of(providers_at(server.url), effect)
    assert (failed.code, len(server.requests)) == ("model_bad_request", 2)
    for message in ("Invalid schema for function 't': array schema missing items.", "temperature is not supported"):
        async with ProviderServer(refusing(message)) as server:
            outcome = await ask(providers_at(server.url), effect)
        assert not isinstance(outcome, Reply)
        assert outcome.code == "model_bad_request"


@pytest.mark.parametrize(
    ("schema", "reply", "words"),
    [
        (thing(a={"type": "string", "pattern": "^(a+)+$"}), json.dumps({"a": "a" * 10_000 + "!"}), "$.a: 'aaaa"),
        (nested_alternatives(40), "1", "it takes too many steps"),
        ({"$ref": "#"}, "{}", "it has a circular reference"),
        ({"$ref": "https://example.com/a.json"}, "{}", "does not point into the schema"),
    ],
)  # fmt: skip
async def test_no_schema_keeps_the_check_of_a_reply_busy(schema: dict[str, Any], reply: str, words: str) -> None:
    model = ScriptedModel([reply])
    failed = await ModelPerformer(Providers.only(model)).perform(AskModel(prompt="x", schema=schema), Observer().call())
    assert isinstance(failed, Failed)
    assert failed.code == "schema_mismatch"
    assert words in failed.message
