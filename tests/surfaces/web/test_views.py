"""The panels of each dialect: what the stream changes in them comes to what the page shows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from cuebook.dialects import registry
from cuebook.performers.models.port import ModelError, Request
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.drawing import laid_out
from cuebook.surfaces.web.picture import Picture
from cuebook.surfaces.web.views import NoView, about_of, view_of
from tests.surfaces.web.house import House
from tests.surfaces.web.markup import Markup

BRANCHES = """\
# Branches

## INPUTS

- `kind` (string: a): Which

## STEP 1: Sort

Sort it.

## STEP 2: Go on

```if kind == "a"```

### STEP 2a: The first

Say a.

```elif kind == "b"```

### STEP 2b: The second

Say b.

```endif```

## STEP 3: End

Say it is over.
"""
GRAPH = """\
id: sorted
name: Sorted
entry: read
nodes:
  read:
    name: Read
    instruction: Read it.
    output: {type: object, properties: {kind: {type: string}}, required: [kind]}
  left: {name: Left, instruction: Go left.}
  right: {name: Right, instruction: Go right.}
edges:
  - {from: read, to: left, when: it is left}
  - {from: read, to: right, when: it is right}
"""
FAN = """\
id: fan
name: Fan
entry: begin
nodes:
  begin: {name: Begin, instruction: Begin.}
  one: {name: One, instruction: One.}
  two: {name: Two, instruction: Two.}
  end: {name: End, instruction: End.}
edges:
  - {from: begin, to: one}
  - {from: one, to: two}
  - {from: two, to: end}
x_cuebook:
  fan_out:
    - {node: begin, to: [one, two], join: end}
"""
CHECKED = """\
id: checked
name: Checked
steps:
  - id: look
    name: Look
    command: cli printf '{"there":true}'
    effect: read
    output: json
    postcondition: {type: json_path, path: $.there, equals: true}
  - id: never
    command: cli echo never
    condition: $look.json.there == false
    effect: read
  - id: wrong
    command: cli sh -c 'exit 3'
    effect: read
    on_error: continue
"""


def says(request: Request) -> str:
    schema: Any = request.schema or {}
    made = {}
    for name, one in schema.get("properties", {}).items():
        choices = [choice for choice in one.get("enum", ()) if "right" in str(choice)] or one.get("enum")
        made[name] = choices[0] if choices else {"integer": 2, "number": 2}.get(one.get("type"), "right")
    return json.dumps(made) if made else "right"


class Shown:
    """A run's panels, as they are at its end, and as its stream left them."""

    def __init__(self, panels: str, parts: dict[str, str]) -> None:
        self.panels = panels
        self.parts = parts
        self.markup = Markup(panels)

    def statuses(self) -> list[str | None]:
        found = [attributes for _, attributes in self.markup.elements if "data-status" in attributes]
        return [one["data-status"] for one in found if str(one.get("id", "")).startswith("box-")]

    def taken(self) -> list[str | None]:
        return [one["data-taken"] for _, one in self.markup.elements if "data-taken" in one]


async def shown(house: House, run: str) -> Shown:
    row = await house.service.get(run)
    text = await house.service.store.playbook(row.playbook)
    picture, view = Picture(row), view_of(row.dialect, text, row.name)
    parts: dict[str, str] = {}
    async for entry in house.service.engine.entries(run):
        picture.apply(entry)
        for name in view.see(entry, picture):
            html = view.part(name, picture)
            for id in re.findall(r'id="([^"]+)"[^>]*data-part', html)[:1]:
                parts[id] = html.strip().removeprefix("<svg>").removesuffix("</svg>")
    return Shown(view.panels(picture), parts)


async def ran(house: House, name: str, text: str, model: ScriptedModel | None = None, **more: Any) -> Shown:
    book = house.book(name, text)
    await house.model(model or ScriptedModel(says)).serve()
    run = await house.begin(playbook=book, **more)
    await house.until(run, "completed", "failed")
    return await shown(house, run)


async def test_a_drawing_of_a_playbook_lights_up_along_its_branch(house: House) -> None:
    made = await ran(house, "branches.md", BRANCHES)
    # the title, 1, 2, 2a, 2b, 3, the end
    assert made.statuses() == ["pending", "completed", "completed", "completed", "pending", "completed", "pending"]
    assert made.taken().count("yes") == 5
    assert all(html in made.panels for html in made.parts.values())


async def test_a_graph_lights_up_and_says_why(house: House) -> None:
    made = await ran(house, "sorted.yml", GRAPH)
    assert made.statuses() == ["completed", "skipped", "completed"]
    assert made.taken() == ["no", "yes"]
    assert "goes on to right: it is right" in made.markup.words
    assert all(html.strip() in made.panels for html in made.parts.values())


async def test_branches_at_once_lead_on_to_where_they_join(house: House) -> None:
    made = await ran(house, "fan.yml", FAN)
    assert made.statuses() == ["completed"] * 4
    assert made.taken() == ["yes"] * len(made.taken())
    arrows = about_of("graph", registry.named("graph").parse(FAN, "fan.yml")).drawing.arrows
    assert {(one.from_, one.to) for one in arrows} == {
        ("begin", "one"),
        ("begin", "two"),
        ("one", "end"),
        ("two", "end"),
    }


async def test_a_pipeline_has_a_timeline_and_evidence(house: House) -> None:
    made = await ran(house, "checked.yml", CHECKED)
    words = made.markup.words
    for one in ("exit code 0", "postcondition holds", "json_path: passed", "does not hold", "exit code 3"):
        assert one in " ".join(words.split()), one
    assert made.markup.has("timeline")
    assert all(made.markup.has(f"evidence-{number}") for number in range(3))
    assert made.parts["timeline"].strip() in made.panels
    assert all(html.strip() in made.panels for html in made.parts.values())


async def test_a_retry_takes_back_what_is_void(house: House) -> None:
    script: list[Any] = ['{"kind": "x"}', says, ModelError("bad_request", "no")]

    def line(request: Request) -> Any:
        one = script.pop(0) if script else says
        return one(request) if callable(one) else one

    house.book("sorted.yml", GRAPH)
    await house.model(ScriptedModel(line)).serve()
    run = await house.begin(playbook="sorted")
    await house.until(run, "failed")
    before = await shown(house, run)
    assert before.statuses()[2] == "failed"
    await house.post(f"/api/runs/{run}/retry", 202, whole_step=True)
    await house.until(run, "completed")
    after = await shown(house, run)
    assert after.statuses() == ["completed", "skipped", "completed"]
    assert all(html.strip() in after.panels for html in after.parts.values())


@pytest.mark.parametrize(
    ("dialect", "text", "needs"),
    [
        ("markdown", BRANCHES, set()),
        ("graph", GRAPH, set()),
        ("pipeline", CHECKED, {("command", "printf"), ("command", "echo"), ("command", "sh")}),
    ],
)
def test_a_playbook_tells_what_it_needs_before_it_runs(dialect: str, text: str, needs: set[tuple[str, str]]) -> None:
    about = about_of(dialect, registry.named(dialect).parse(text, "x"))
    assert {(need.kind, need.name) for need in about.needs} == needs
    assert laid_out(about.drawing).wide > 0


def test_a_dialect_without_a_view_shows_nothing_besides() -> None:
    assert isinstance(view_of("python", "", ""), NoView)
    assert about_of("python", None).drawing.boxes == ()
