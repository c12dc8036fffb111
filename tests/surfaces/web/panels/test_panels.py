"""The panels of each dialect: the changes of the stream lead to the same page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from cuebook.dialects import registry
from cuebook.dialects.playbook import Playbook
from cuebook.dialects.presentation.panels import PanelKind
from cuebook.performers.models.model import ModelError, Request
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.drawing.layout import laid_out
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.panels import RunPanels, calls, conversation, drawing, evidence, listing, table, timeline
from tests.support.programs import new_row
from tests.surfaces.web.markup import Markup
from tests.surfaces.web.served_app import ServedApp

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


async def shown(web: ServedApp, run: str) -> Shown:
    row = await web.service.get(run)
    picture, view = Picture(row), RunPanels(await web.service.playbook_of(row))
    parts: dict[str, str] = {}
    async for entry in web.service.entries(run):
        picture.apply(entry)
        for name in view.see(entry, picture):
            html = view.part(name, picture)
            for id in re.findall(r'id="([^"]+)"[^>]*data-part', html)[:1]:
                parts[id] = html.strip().removeprefix("<svg>").removesuffix("</svg>")
    return Shown(view.html(picture), parts)


async def ran(web: ServedApp, name: str, text: str, model: ScriptedModel | None = None, **more: Any) -> Shown:
    book = web.book(name, text)
    await web.model(model or ScriptedModel(says)).serve()
    run = await web.begin(playbook=book, **more)
    await web.until(run, "completed", "failed")
    return await shown(web, run)


async def test_a_drawing_of_a_playbook_lights_up_along_its_branch(web: ServedApp) -> None:
    made = await ran(web, "branches.md", BRANCHES)
    # the title, 1, 2, 2a, 2b, 3, the end
    assert made.statuses() == ["pending", "completed", "completed", "completed", "pending", "completed", "pending"]
    assert made.taken().count("yes") == 5
    assert all(html in made.panels for html in made.parts.values())


async def test_a_graph_lights_up_and_shows_why(web: ServedApp) -> None:
    made = await ran(web, "sorted.yml", GRAPH)
    assert made.statuses() == ["completed", "skipped", "completed"]
    assert made.taken() == ["no", "yes"]
    assert "continues with right: it is right" in made.markup.words
    assert all(html.strip() in made.panels for html in made.parts.values())


async def test_parallel_branches_lead_to_their_join(web: ServedApp) -> None:
    made = await ran(web, "fan.yml", FAN)
    assert made.statuses() == ["completed"] * 4
    assert made.taken() == ["yes"] * len(made.taken())
    graph = registry.named("graph")
    drawing = laid_out(graph.drawing(graph.parse(FAN, "fan.yml"))).drawing
    node = {box.id: box.step for box in drawing.boxes}
    assert {(node[one.from_], node[one.to]) for one in drawing.arrows} == {
        ("begin", "one"),
        ("begin", "two"),
        ("one", "end"),
        ("two", "end"),
    }


async def test_a_pipeline_has_a_timeline_and_evidence(web: ServedApp) -> None:
    made = await ran(web, "checked.yml", CHECKED)
    words = made.markup.words
    for one in ("exit code 0", "postcondition holds", "json_path: passed", "does not hold", "exit code 3"):
        assert one in " ".join(words.split()), one
    assert made.markup.has("timeline")
    assert all(made.markup.has(f"evidence-{number}") for number in range(3))
    assert made.parts["timeline"].strip() in made.panels
    assert all(html.strip() in made.panels for html in made.parts.values())


async def test_a_retry_removes_void_parts(web: ServedApp) -> None:
    script: list[Any] = ['{"kind": "x"}', says, ModelError("bad_request", "no")]

    def line(request: Request) -> Any:
        one = script.pop(0) if script else says
        return one(request) if callable(one) else one

    web.book("sorted.yml", GRAPH)
    await web.model(ScriptedModel(line)).serve()
    run = await web.begin(playbook="sorted")
    await web.until(run, "failed")
    before = await shown(web, run)
    assert before.statuses()[2] == "failed"
    await web.post(f"/api/runs/{run}/retry", 202, whole_step=True)
    await web.until(run, "completed")
    after = await shown(web, run)
    assert after.statuses() == ["completed", "skipped", "completed"]
    assert all(html.strip() in after.panels for html in after.parts.values())


@pytest.mark.parametrize(
    ("dialect", "text", "needs"),
    [
        ("markdown", BRANCHES, {("model", "any")}),
        ("graph", GRAPH, {("model", "any")}),
        ("pipeline", CHECKED, {("command", "printf"), ("command", "echo"), ("command", "sh")}),
    ],
)
def test_a_playbook_shows_what_it_needs_before_it_runs(dialect: str, text: str, needs: set[tuple[str, str]]) -> None:
    document = registry.named(dialect).parse(text, "x")
    assert {(need.kind, need.name) for need in registry.named(dialect).summary(document).needs} == needs
    assert laid_out(registry.named(dialect).drawing(document)).wide > 0


def test_a_dialect_without_panels_shows_none() -> None:
    assert RunPanels(None).html(Picture(new_row("x"))).strip() == ""


def test_every_kind_of_panel_has_a_renderer() -> None:
    kinds = get_args(PanelKind)
    shown = {
        Path(one.__file__ or "").stem for one in (calls, conversation, drawing, evidence, listing, table, timeline)
    }
    assert shown == set(kinds)
    for dialect, text in (("markdown", BRANCHES), ("graph", GRAPH), ("pipeline", CHECKED)):
        found = Playbook.from_text(text, registry.named(dialect).default_name)
        assert {one.kind for one in found.dialect.panels(found.document)} <= set(kinds)
        assert RunPanels(found).html(Picture(new_row("x"))).strip()
