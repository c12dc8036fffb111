"""The conformance cases in tests/vectors/graph, each on the real engine. Their README explains the format.

A case that holds for the reference alone must not hold here: then the difference is gone, and the case should say so.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.graph.check import unknown_skills
from cuebook.dialects.graph.inputs import accept
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.parse import parse
from cuebook.formats.yaml import read_yaml
from cuebook.kernel.effects import AskModel, ReadSource
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import RunFinished
from cuebook.kernel.outcomes import Failed, Reply
from cuebook.kernel.ports import Call
from cuebook.kernel.run import RunRow
from cuebook.stores.memory import MemoryStore
from tests.dialects.graph.case_environment import CaseEnvironment
from tests.dialects.graph.harness import Asked, GraphHarness

VECTORS = Path(__file__).resolve().parents[2] / "vectors/graph"
BOTH = ["spec", "reference"]
GIVEN = {
    "case", "profiles", "workflow", "text", "input", "options", "stop", "model", "skills", "known_skills", "built_in",
    "tools", "files", "urls", "hosts", "environment", "config", "expect",
}  # fmt: skip
CODE = re.compile(r"^\| `(\w+)` \| (format|reference|suite|cuebook) \|", re.MULTILINE)
"""A row of the README that explains a code and says who defines it."""


def found() -> Iterator[Any]:
    for path in sorted(VECTORS.glob("*.yaml")):
        for number, case in enumerate(read_yaml(path.read_text(encoding="utf-8")).plain):
            assert set(case) <= GIVEN, f"{path.name}: {sorted(set(case) - GIVEN)}"
            yield pytest.param(case, id=f"{path.stem}-{number}-{case['case'].replace(' ', '_')[:60]}")


CASES = list(found())


def profiles(case: Mapping[str, Any]) -> list[str]:
    return list(case.get("profiles", BOTH))


def holds_here(case: Mapping[str, Any]) -> bool:
    return profiles(case) != ["reference"]


@pytest.mark.parametrize("case", [one for one in CASES if holds_here(one.values[0])])
async def test_case(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await differences(case, CaseEnvironment(case, tmp_path, monkeypatch)) == []


@pytest.mark.parametrize("case", [one for one in CASES if not holds_here(one.values[0])])
async def test_the_reference_differs(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await differences(case, CaseEnvironment(case, tmp_path, monkeypatch)) != []


def test_every_code_is_documented() -> None:
    defined = dict(CODE.findall((VECTORS / "README.md").read_text(encoding="utf-8")))
    for one in CASES:
        case = one.values[0]
        for code in codes_of(case["expect"]):
            assert code in defined, f"{one.id}: the README does not say what {code} is"
            assert defined[code] != "cuebook" or profiles(case) == ["cuebook"], f"{one.id}: {code} is Cuebook's own"


def codes_of(expect: Mapping[str, Any]) -> list[str]:
    refused = expect.get("refused", [])
    return [*(refused if refused is not True else ()), *expect.get("warned", ()), *filter(None, [expect.get("error")])]


def test_every_field_of_a_case_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)(?:\.\w+)?`", (VECTORS / "README.md").read_text(encoding="utf-8")))
    expected = {name for one in CASES for name in one.values[0]["expect"]}
    assert (GIVEN | expected) - explained == set()


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 200
    assert {profile for one in CASES for profile in profiles(one.values[0])} == {"spec", "reference", "cuebook"}


# --- playing ------------------------------------------------------------------------------------------------


async def differences(case: Mapping[str, Any], environment: CaseEnvironment) -> list[str]:
    expect = dict(case["expect"])
    text = case["text"] if "text" in case else json.dumps(case["workflow"])
    if "refused" in expect:
        return refusals(text, expect["refused"])
    try:
        workflow = parse(text, "case.yml")
    except InvalidPlaybook as refused:
        return [str(refused)]
    if "refused_input" in expect:
        return refused_input(workflow, case.get("input", {}), expect["refused_input"])
    found = []
    if "warned" in expect:
        unknown = unknown_skills(workflow, case["known_skills"]) if "known_skills" in case else ()
        codes = {one.code for one in (*workflow.warnings, *unknown)}
        found += compare("warned", codes, set(expect.pop("warned")))
    if expect.pop("loads", False) and not expect:
        return found
    model = case.get("model", {})
    harness = GraphHarness(
        MemoryStore(),
        run=model.get("run", {}),
        route=model.get("route", {}),
        ask=model.get("ask", []),
        tools=case.get("tools", {}),
    )
    harness.service._engine.performers = {**harness.service._engine.performers, ReadSource: environment}
    given, options = case.get("input", {}), case.get("options", {})
    if "stop" in case:
        row = await stopped(harness, text, given, options, case["stop"])
    else:
        row = await harness.run(text, given, **options)
    played = Played(harness, environment, row.id, row.status)
    await played.look()
    for name, wanted in expect.items():
        found += getattr(played, name)(wanted)
    await harness.service.close()
    return found


def refusals(text: str, wanted: list[str] | Literal[True]) -> list[str]:
    try:
        parse(text, "case.yml")
    except InvalidPlaybook as refused:
        codes = {problem.code for problem in refused.problems}
        return [] if wanted is True else compare("refused", codes, set(wanted))
    return ["nothing was refused"]


def refused_input(workflow: Workflow, given: Mapping[str, Any], wanted: list[str]) -> list[str]:
    """The message names each missing or invalid input and says what it must be."""
    try:
        accept(workflow, given)
    except BadInput as refused:
        names = {*given, *(one.name for one in workflow.declared or ())}
        found = {
            name
            for name in names
            if re.search(rf"(?<!\w){re.escape(name)} (?:\(|must|is not|has no|cannot)", refused.message)
        }
        return compare("refused input", found, set(wanted))
    return ["nothing was refused"]


async def stopped(
    harness: GraphHarness, text: str, given: Mapping[str, Any], options: Mapping[str, Any], at: str
) -> RunRow:
    """A run that its caller stops: before it begins, or while a question is open."""
    asked = asyncio.Event()

    class Held:
        async def perform(self, effect: AskModel, call: Call) -> Reply | Failed:
            reply = await harness.script.perform(effect, call)
            if harness.calls[-1] == at:
                asked.set()
                await asyncio.Event().wait()
            return reply

    harness.service._engine.performers = {**harness.service._engine.performers, AskModel: Held()}
    row = await harness.start(text, given, **options)
    if at == "start":
        await harness.service.cancel(row.id)
        return await harness.service.drive(row.id)
    driving = asyncio.create_task(harness.service.drive(row.id))
    await asyncio.wait_for(asked.wait(), 30)
    await harness.service.cancel(row.id)
    return await driving


def compare(what: str, found: Any, wanted: Any) -> list[str]:
    return [] if found == wanted else [f"{what}: {found!r} instead of {wanted!r}"]


def covers(found: Any, wanted: Any) -> bool:
    """Whether everything expected is there; objects may contain more."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(name in found and covers(found[name], one) for name, one in wanted.items())
    return bool(found == wanted)


class Played:
    """The result of a case, with one method for each compared field."""

    def __init__(self, harness: GraphHarness, environment: CaseEnvironment, run: str, status: str) -> None:
        self._bench, self._world, self._run, self._status = harness, environment, run, status

    async def look(self) -> None:
        harness = self._bench
        self._events = await harness.events(self._run)
        self._trace = await harness.trace(self._run)
        self._results = await harness.results(self._run)
        ends = [entry.event for entry in await harness.entries(self._run) if isinstance(entry.event, RunFinished)]
        self._error = ends[-1].error if ends else None
        live = [told(event) for event in harness.live if event["type"] != "node:progress"]
        assert not live or live == [told(event) for event in self._events]

    def _call(self, kind: str, key: str) -> Asked:
        node, _, number = key.partition("#")
        calls = self._bench.asked(kind, node)
        return calls[int(number) - 1 if number else -1]

    def status(self, wanted: str) -> list[str]:
        return compare("status", self._status, wanted)

    def error(self, wanted: str) -> list[str]:
        return compare("error", self._error.code if self._error is not None else None, wanted)

    def calls(self, wanted: list[str]) -> list[str]:
        return compare("calls", self._bench.calls, wanted)

    def events(self, wanted: list[str]) -> list[str]:
        return compare("events", [told(event) for event in self._events], wanted)

    def steps(self, wanted: list[str]) -> list[str]:
        return compare("steps", [step(one) for one in self._trace["steps"]], wanted)

    def edges(self, wanted: list[str]) -> list[str]:
        edges = [f"{one['from']}>{one['to']}: {one['reason']}" for one in self._trace["edges"]]
        return compare("edges", edges, wanted)

    def results(self, wanted: dict[str, Any]) -> list[str]:
        problems = []
        for node, one in wanted.items():
            found = dict(self._results.get(node, {}))
            found["toolCalls"] = [_marked(call["tool"], call.get("status") == "success") for call in found["toolCalls"]]
            found["evals"] = [_marked(said["name"], said["pass"]) for said in found.get("evals", ())]
            problems += [] if covers(found, one) else [f"result of {node}: {found!r} does not hold {one!r}"]
        return problems

    def error_holds(self, wanted: dict[str, list[str]]) -> list[str]:
        errors = {node: str(self._results[node]["data"].get("error", "")) for node in wanted}
        return [
            f"{errors[node]!r} lacks {one!r}"
            for node, texts in wanted.items()
            for one in texts
            if one not in errors[node]
        ]

    def context(self, wanted: dict[str, Any]) -> list[str]:
        calls = {key: self._call("run", key).context for key in wanted}
        return [f"{key} is shown {calls[key]!r}" for key, one in wanted.items() if not covers(calls[key], one)]

    def no_context(self, wanted: dict[str, list[str]]) -> list[str]:
        calls = {key: self._call("run", key).context for key in wanted}
        return [f"{key} is shown {name}" for key, names in wanted.items() for name in names if name in calls[key]]

    def route_view(self, wanted: dict[str, Any]) -> list[str]:
        problems = []
        for node, one in wanted.items():
            shown = {name: value for name, value in self._call("route", node).context.items() if name != "input"}
            problems += compare(f"route view of {node}", shown, one)
        return problems

    def choices(self, wanted: dict[str, list[str]]) -> list[str]:
        problems = []
        for key, one in wanted.items():
            problems += compare(
                f"choices of {key}", [name for name in self._call("route", key).choices if name != "none"], one
            )
        return problems

    def instruction(self, wanted: dict[str, str]) -> list[str]:
        return [line for key, one in wanted.items() for line in compare(key, self._call("run", key).prompt, one)]

    def instruction_holds(self, wanted: dict[str, list[str]]) -> list[str]:
        problems = []
        for key, texts in wanted.items():
            rest = self._call("run", key).prompt
            for one in texts:
                before, there, rest = rest.partition(one)
                problems += [] if there else [f"{key} is not told {one!r} after {before[-80:]!r}"]
        return problems

    def offered(self, wanted: dict[str, list[str]]) -> list[str]:
        return [line for key, one in wanted.items() for line in compare(key, self._offered(key), one)]

    def _offered(self, node: str) -> list[str]:
        """The tools of a node. `Task` is our own addition to the built-in tools of the format."""
        return [tool for tool in self._call("run", node).tools if tool != "Task"]

    def models(self, wanted: dict[str, Any]) -> list[str]:
        problems = []
        for key, one in wanted.items():
            kind, _, node = key.rpartition(" ")
            problems += compare(key, self._call(kind or "run", node).effect.model, one)
        return problems

    def turns(self, wanted: dict[str, int]) -> list[str]:
        return [
            line for node, one in wanted.items() for line in compare(node, len(self._bench.asked("run", node)), one)
        ]

    def performed(self, wanted: list[str]) -> list[str]:
        return compare("performed", [name for name, _ in self._bench.tools.called], wanted)

    def fetched(self, wanted: list[str]) -> list[str]:
        return compare("fetched", self._world.fetched, wanted)

    def warnings(self, wanted: list[str]) -> list[str]:
        said = [json.dumps(event) for event in self._events if event["type"] == "node:warning"]
        missing = [one for one in wanted if not any(one in text for text in said)]
        return [f"no warning holds {one!r} of {said}" for one in missing] + ([] if wanted or not said else said)

    def sources(self, wanted: dict[str, Any]) -> list[str]:
        return [] if covers(self._trace["sources"], wanted) else [f"sources: {self._trace['sources']!r}"]


def told(event: Mapping[str, Any]) -> str:
    if event["type"] == "route":
        return f"route {event['from']}>{event['to']}"
    return f"{event['type']} {event['node']}" if "node" in event else str(event["type"])


def step(one: Mapping[str, Any]) -> str:
    attempt = f" #{one['retryAttempt']}" if "retryAttempt" in one else ""
    return f"{one['node']} {one['status']} {one['iteration']}{attempt}"


def _marked(name: str, good: bool) -> str:
    return name if good else f"{name}!"
