"""The pages without JavaScript, over a real socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from cuebook.dialects import registry
from cuebook.kernel.run import Settings
from cuebook.performers.models.model import ModelError, Request, Tokens
from cuebook.performers.models.scripted import Line, Says, ScriptedModel
from cuebook.service.preview.explanation import Explanation, explain
from cuebook.wiring.preview import preview_setup
from tests.support.doubling_program import DESK
from tests.support.runtime import GATED
from tests.surfaces.web.markup import TRICKS, Markup
from tests.surfaces.web.served_app import ServedApp

TEA = """\
# Tea

Makes `tea`, as [the guide](https://example.org/tea) says.

## INPUTS

- `kind` (string: green): Which tea
- `leaf` (enum: whole, broken): How it is cut
- `cups` (number: 2): How many
- `milk` (boolean): Whether with milk
- `guest` (string): Who drinks it

## STEP 1: Choose

Choose a {{kind}} tea for {{guest}}.

@output(chosen)

## STEP 2: Brew

Brew {{chosen}} for {{cups}}.

## ARTIFACTS

type: markdown
"""
FORK = """\
id: fork
name: Fork
entry: a
inputs:
  loud: {type: boolean, default: true}
  sure: {type: boolean, required: true}
  names: {type: "string[]"}
nodes:
  a: {name: A, instruction: Begin.}
  b: {name: B, instruction: Do one.}
  c: {name: C, instruction: Do the other.}
  d: {name: D, instruction: End.}
edges:
  - {from: a, to: b}
  - {from: a, to: c}
  - {from: b, to: d}
  - {from: c, to: d}
"""
ASKS = """\
# Asks

## STEP 1: Say

@elicit(input, "What <b>is</b> it?")

## STEP 2: Pick

@elicit(select, "Which?", "a", "b")

## STEP 3: Sure

@elicit(confirm, "Really?")
"""


async def page(web: ServedApp, path: str, status: int = 200) -> Markup:
    response = await web.client.get(path, headers={"Accept": "text/html"})
    assert response.status_code == status, response.text
    made = Markup(response.text)
    assert made.dangers() == []
    return made


def fields(made: Markup) -> dict[str, dict[str, str | None]]:
    """The fields of a form for values, by their names."""
    return {
        str(attributes["data-name"]): {"tag": tag, **attributes}
        for tag, attributes in made.elements
        if "data-name" in attributes
    }


async def asked(web: ServedApp, run: str, type_: str) -> dict[str, Any]:
    """The question of this type, once it is asked."""
    async with asyncio.timeout(30):
        while True:
            for wait in (await web.get(f"/api/runs/{run}"))["waits"]:
                if wait["type"] == type_:
                    return dict(wait)
            await asyncio.sleep(0.02)


async def drink(web: ServedApp, **more: Any) -> str:
    web.book("tea.md", TEA)
    if not web.link:
        says: list[Line] = [
            Says("Some *sencha*.", tokens=Tokens(30, 5, cached=10, reasoning=2), cost=0.0123),
            "Brewed.",
        ]
        await web.model(ScriptedModel(says, cycle=True)).serve()
    run = await web.begin(playbook="tea", inputs={"guest": "Ada", "milk": True, "leaf": "whole"}, **more)
    await web.until(run, "completed", "paused", "failed")
    return run


async def test_the_library_lists_playbooks_and_what_each_needs(web: ServedApp) -> None:
    web.book("tea.md", TEA)
    web.book("gated.yml", GATED)
    web.book("bad.yml", "name: B\nsteps: []\n")
    await web.model(ScriptedModel([])).serve()
    words = (await page(web, "/")).words
    for one in (
        "Tea",
        "Makes tea, as the guide (example.org) says.",
        "model any",
        "Gated",
        "command echo",
        "approve a step",
        "not run yet",
    ):
        assert one in words, one
    assert "1 file cannot be run as written" in words
    found = (await page(web, "/?q=GATED")).words
    assert "Gated" in found
    assert "Makes tea" not in found
    assert "No playbook matches" in (await page(web, "/?q=coffee")).words


async def test_findings_are_shown_before_a_run(web: ServedApp) -> None:
    web.book("odd.md", "# Odd\n\n## STEP 1: Say\n\nSay {{thsi}}.\n")
    web.book("noted.yml", "id: noted\nname: N\nsteps:\n  - id: a\n    command: cli tee x\n")
    web.book("fine.md", "# Fine\n\n## STEP 1: Say\n\nSay it.\n")
    await web.model(ScriptedModel([])).serve()
    assert (await page(web, "/")).words.count("warning") == 1
    for path in ("/playbooks/odd", "/playbooks/odd/run"):
        words = (await page(web, path)).words
        for one in ("1 warning in this playbook", "line 5", "{{thsi}}", "Declare it in INPUTS"):
            assert one in words, one
    assert "in this playbook" not in (await page(web, "/playbooks/fine")).words
    assert "1 note in this playbook" in (await page(web, "/playbooks/noted")).words
    assert "in this playbook" not in (await page(web, "/playbooks/noted/run")).words


async def test_pages_without_anything_to_show_say_so(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    for path, words in (
        ("/", "There are no playbooks here yet"),
        ("/runs", "Nothing has been run yet"),
        ("/inbox", "Nothing is waiting for you"),
        ("/settings/connections", "No tool server is configured"),
    ):
        assert words in (await page(web, path)).words


async def test_missing_pages_say_so(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    for path in ("/nowhere", "/playbooks/none", "/playbooks/none/run", "/runs/none", "/runs/a/diff/b"):
        made = await page(web, path, 404)
        assert "404" in made.words
    assert "The Runs page lists them." in (await page(web, "/runs/none", 404)).words
    assert "There is no playbook 'none'" in (await page(web, "/playbooks/none", 404)).words


async def test_preflight_has_a_field_for_each_input_by_its_type(web: ServedApp) -> None:
    web.book("tea.md", TEA)
    await web.model(ScriptedModel([])).serve()
    made = await page(web, "/playbooks/tea/run")
    inputs = fields(made)
    assert inputs["leaf"]["tag"] == "select"
    assert (inputs["cups"]["type"], inputs["cups"]["placeholder"]) == ("number", "2")
    assert "required" not in inputs["cups"]
    assert (inputs["milk"]["tag"], inputs["milk"]["type"]) == ("input", "checkbox")
    assert "required" in inputs["guest"]
    boxes = [attributes["value"] for _, attributes in made.elements if attributes.get("data-list") == "breakpoints"]
    assert boxes == ["1", "2"]
    models = [a["value"] for tag, a in made.elements if tag == "option" and "data-cost" in a]
    assert "test/one" in models
    assert not any(str(name).startswith(("openai/", "anthropic/")) for name in models)
    assert "Estimate" in made.words


def section(words: str) -> str:
    """The overview of a run, on one line."""
    return " ".join(words.partition("What a run would do")[2].partition(" with ")[0].split())


async def explained(web: ServedApp, id: str) -> Explanation:
    """The value that `cuebook explain` shows of a playbook in the library."""
    one = await web.site.library.find(id)
    settings, setup = Settings(folder=one.playbook.folder), preview_setup(web.wiring)
    return await explain(web.service, one.playbook, {}, settings, setup, every_act=True)


async def test_a_page_names_the_same_decisions_as_what_would_be_asked(web: ServedApp) -> None:
    web.book("one.yml", "id: one\nname: One\nentry: a\nnodes:\n  a: {name: A, instruction: Do it.}\nedges: []\n")
    await web.model(ScriptedModel([])).serve()
    words = section((await page(web, "/playbooks/one")).words)
    assert "Asks for approval tool Write tool Edit tool Bash tool WebFetch Models" in words
    (step,) = (await explained(web, "one")).asked
    assert step.asking_tools == ("Write", "Edit", "Bash", "WebFetch")


@pytest.mark.parametrize("path", ["/playbooks/{}", "/playbooks/{}/run"])
async def test_pages_show_what_a_run_would_ask_reach_and_use(web: ServedApp, path: str) -> None:
    web.book("gated.yml", GATED)
    web.book("asks.md", ASKS)
    web.book("tea.md", TEA)
    await web.model(ScriptedModel([])).serve()
    words = section((await page(web, path.format("gated"))).words)
    for one in ("Asks for approval step write: run tee made.txt", "Commands", "wc -l made.txt", "no model is called"):
        assert one in words, one
    assert "Models" not in words
    words = section((await page(web, path.format("asks"))).words)
    assert "Asks for approval no Questions 1: What <b>is</b> it?" in words
    words = section((await page(web, path.format("tea"))).words)
    use = (await explained(web, "tea")).bound.use
    assert use is not None
    assert use.calls == 2
    assert f"At most 2 model calls, {use.input_tokens:,} tokens in, {use.output_tokens:,} out" in words
    assert "Models test/one" in words


async def test_a_preview_is_made_once_for_the_same_text(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    web.book("tea.md", f"{TEA}\n")
    await web.model(ScriptedModel([])).serve()
    dialect, made = registry.named("markdown"), list[str]()
    preview = dialect.preview

    def counted(document: Any, *given: Any) -> Any:
        made.append(document.title)
        return preview(document, *given)

    monkeypatch.setattr(dialect, "preview", counted)
    for path in ("/playbooks/tea", "/playbooks/tea/run", "/playbooks/tea"):
        await page(web, path)
    assert len(made) == 1
    web.book("tea.md", TEA.replace("Brew {{chosen}}", "Boil {{chosen}}"))
    await page(web, "/playbooks/tea")
    assert len(made) == 2


async def test_the_estimate_of_a_playbook_that_never_ran_is_its_upper_bound(web: ServedApp) -> None:
    web.book("tea.md", TEA)
    web.book("gated.yml", GATED)
    await web.model(ScriptedModel([])).serve()
    made = await page(web, "/playbooks/tea/run")
    assert "Estimate unknown: no price is listed for this model the most that a run may use" in made.words
    costs = {str(a["value"]): str(a["data-cost"]) for tag, a in made.elements if tag == "option" and "data-cost" in a}
    assert costs["local/smollm2-135m"] == "free: it runs on this machine"
    assert "Estimate no model is called" in (await page(web, "/playbooks/gated/run")).words


async def test_the_estimate_follows_what_runs_have_used(web: ServedApp) -> None:
    await drink(web)
    assert "as in its last completed run" in (await page(web, "/playbooks/tea/run")).words


async def test_a_single_step_has_no_breakpoints(web: ServedApp) -> None:
    web.book("one.md", "# One\n\n## STEP 1: Only\n\nSay it.\n")
    await web.model(ScriptedModel([])).serve()
    assert "Pause after" not in (await page(web, "/playbooks/one/run")).words


async def test_a_form_without_javascript_starts_any_dialect(web: ServedApp) -> None:
    web.book("fork.yml", FORK)
    web.book("desk.pbasm", DESK)
    await web.model(ScriptedModel(["Done."], cycle=True)).serve()

    async def sent(book: str, *more: tuple[str, str]) -> httpx2.Response:
        """What the form says as it is, with other values for some of its fields."""
        made = await page(web, f"/playbooks/{book}/run")
        begun = [(str(a["name"]), str(a.get("value") or "")) for tag, a in made.elements if is_sent(tag, a)]
        body = urlencode([*begun, *more])
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
        return await web.client.post(f"/playbooks/{book}/run", content=body, headers=headers)

    async def begun(response: httpx2.Response) -> dict[str, Any]:
        assert response.status_code == 303, response.text
        return dict(await web.get(f"/api{response.headers['location']}"))

    run = await begun(await sent("fork", ("switch_parallel", "on"), ("var_names", "a, b"), ("budget_money", "0.5")))
    assert run["inputs"] == {"loud": True, "sure": False, "names": ["a", "b"]}
    settings = (await web.service.settings(run["run"]))[1]
    assert (settings.options["parallel"], settings.budget.money) == (True, 0.5)
    run = await begun(await sent("desk", ("option_call", "Twice(number=4)")))
    assert (await web.service.settings(run["run"]))[1].options["call"] == "Twice(number=4)"
    for wrong in (("budget_money", "inf"), ("budget_tokens", "1.5"), ("budget_tokens", "x"), ("breakpoints", "none")):
        refused = await sent("fork", ("switch_parallel", "on"), wrong)
        assert refused.status_code == 422, wrong
        assert "<h1>" in refused.text


def is_sent(tag: str, attributes: dict[str, str | None]) -> bool:
    """Whether a browser sends the field of a form that nobody has touched."""
    if tag not in ("input", "textarea") or not attributes.get("name"):
        return False
    return attributes.get("type") != "checkbox" or "checked" in attributes


async def test_a_run_is_read_without_javascript(web: ServedApp) -> None:
    run = await drink(web)
    made = await page(web, f"/runs/{run}")
    assert made.by_id("run-status")["data-status"] == "completed"
    assert "data-ended" in made.by_id("run-status")
    for one in ("Some sencha.", "Brewed.", "2 of 2", f"Download tea-{run}.md", "Where the time and money went"):
        assert one in made.words, one
    for name, value in (
        ("Provider", "test"),
        ("Model", "one"),
        ("Finish reason", "stop"),
        ("Tokens (in/out)", "30 / 5"),
        ("Cached tokens", "10"),
        ("Reasoning tokens", "2"),
        ("Cost estimate", "$0.0123"),
    ):
        assert f"{name}{value}" in made.words, name
    assert "Input preview" in made.words
    assert "Choose a green tea for Ada." in made.words
    assert made.has("var-chosen")
    assert made.has("fork")


async def test_the_page_of_a_playbook_has_its_history(web: ServedApp) -> None:
    run = await drink(web)
    words = (await page(web, "/playbooks/tea")).words
    for one in ("Choose", "Which tea", "default: green", run, "completed", "test/one", "2 of 2"):
        assert one in words, one
    listed = (await page(web, "/runs?status=completed&playbook=tea")).words
    assert run in listed
    assert "No matching runs" in (await page(web, "/runs?status=failed")).words


async def test_a_failed_run_shows_why_and_can_be_retried(web: ServedApp) -> None:
    web.book("tea.md", TEA)
    await web.model(ScriptedModel([ModelError("bad_request", "The kettle is `broken`.")])).serve()
    run = await drink(web)
    made = await page(web, f"/runs/{run}")
    assert "The kettle is" in made.words
    assert "Retry where it stopped" in made.words
    assert made.by_id("head-2")["data-status"] == "skipped"
    assert "The kettle is" in (await page(web, "/runs")).words


async def test_a_pause_is_a_banner_with_the_variables(web: ServedApp) -> None:
    run = await drink(web, breakpoints="1")
    made = await page(web, f"/runs/{run}")
    assert made.by_id("head-1")["data-status"] == "paused"
    assert "Resume" in made.words
    assert {"kind", "guest", "chosen"} <= set(fields(made))
    assert "Paused after step 1" in (await page(web, "/inbox")).words
    [form] = [a for _, a in made.elements if a.get("data-kind") == "breakpoint"]
    # Without JavaScript the form itself ends the pause.
    response = await web.client.post(
        str(form["action"]),
        content="",
        headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"},
    )
    assert (response.status_code, response.headers["location"]) == (303, f"/runs/{run}")
    await web.until(run, "completed")


async def test_a_question_shows_its_answer_its_author_and_its_variable(web: ServedApp) -> None:
    await web.model(ScriptedModel(["Said."])).serve()
    text = '# T\n\n## STEP 1: Ask\n\n@elicit(input, "Who?")\n@output(who)\n\n## STEP 2: Say\n\nSay {{who}}.\n\n@output(__proto__)\n'
    run = await web.begin(playbook=web.book("t.md", text), breakpoints="1")
    await web.post(f"/api/waits/{(await web.waiting(run))['wait']}/answer", 200, value="Ada")
    await web.until(run, "paused")
    made = await page(web, f"/runs/{run}")
    assert {"who", "__elicit_step_1"} <= set(fields(made))
    assert "Question Who? Answer Ada by " in " ".join(made.words.split())
    html = (await web.client.get(f"/runs/{run}")).text
    assert 'Its output is this answer.</p><pre class="raw" tabindex="0">Ada</pre>' in html, "kept for Copy and Raw"
    assert '<div class="rendered">' not in html
    message = await web.get(f"/api/runs/{run}")
    assert message["values"] == {"__elicit_step_1": "Ada", "who": "Ada"}
    await web.post(f"/api/runs/{run}/resume", 202)
    shown = [one.data["name"] for one in await web.all_events(run) if one.event == "variable-update"]
    assert shown == ["__elicit_step_1", "who", "__proto__"]
    assert (await web.get(f"/api/runs/{run}"))["answers"] == {
        "1": [{"question": "Who?", "answer": "Ada", "by": message["owner"]}]
    }


@pytest.mark.parametrize(("section", "suffix"), [("", ".md"), ("\n## ARTIFACTS\n\ntype: mermaid\n", ".mmd")])
async def test_the_result_of_a_run_can_be_downloaded(web: ServedApp, section: str, suffix: str) -> None:
    await web.model(ScriptedModel(["Out.", ModelError("bad_request", "No.")])).serve()
    text = f'# T\n\n## STEP 1: A\n\nDo A.\n\n## STEP 2: B\n\n@elicit(confirm, "Sure?")\n{section}'
    run = await web.begin(playbook=web.book("t.md", text))
    wait = (await web.waiting(run))["wait"]
    assert "Download" not in (await page(web, f"/runs/{run}")).words
    await web.post(f"/api/waits/{wait}/answer", 200, value="yes")
    await web.until(run, "completed")
    file = await web.client.get(f"/api/runs/{run}/artifact")
    name = f"t-{run}{suffix}"
    assert file.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert (await page(web, f"/runs/{run}")).words.count(f"Download {name}") == 1
    cut = await web.begin(playbook=web.book("cut.md", text))
    await web.until(cut, "failed")
    assert "Download" not in (await page(web, f"/runs/{cut}")).words


async def test_the_partial_result_of_a_cancelled_run_can_be_downloaded(web: ServedApp) -> None:
    run = await drink(web, breakpoints="1")
    await web.post(f"/api/runs/{run}/cancel", 202)
    await web.until(run, "cancelled")
    assert f"Download tea-{run}.md" in (await page(web, f"/runs/{run}")).words


async def test_each_kind_of_question_has_its_form(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    for type_, answer, words in (
        ("input", "it", "What <b>is</b> it?"),
        ("select", "b", "Which?"),
        ("confirm", "yes", "Really?"),
    ):
        wait = await asked(web, run, type_)
        made = await page(web, f"/runs/{run}")
        form = made.by_id(f"wait-{wait['wait']}")
        assert (form["data-kind"], form["data-type"]) == ("question", type_)
        if type_ == "input":  # the field is empty, so a click cannot submit it
            assert "required" in made.by_id(f"answer-{wait['wait']}")
        assert words in made.words
        assert f"wait-{wait['wait']}" in [a.get("id") for _, a in (await page(web, "/inbox")).elements]
        await web.post(f"/api/waits/{wait['wait']}/answer", 200, value=answer)
    await web.until(run, "completed")


async def test_an_approval_shows_what_it_is_about(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("gated.yml", GATED))
    wait = await web.waiting(run)
    made = await page(web, f"/runs/{run}")
    assert made.by_id(f"wait-{wait['wait']}")["data-kind"] == "approval"
    for one in ("tee made.txt", '[{"file":"a"},{"file":"b"}]', "the step asks for approval", "Approve", "Deny"):
        assert one in made.words, one
    await web.post(f"/api/waits/{wait['wait']}/decide", 200, decision="approve", reason="fine")
    await web.until(run, "completed")
    assert "approved by" in (await page(web, f"/runs/{run}")).words


async def test_a_long_approval_leads_to_all_of_it(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    words = "x" * 2_000 + "\\u202eEVIL <b>words</b>" + "y" * 4_000
    run = await web.begin(playbook=web.book("gated.yml", GATED.replace("$list.stdout", f'"{words}"')))
    wait = await web.waiting(run)
    for path in (f"/runs/{run}", "/inbox"):
        made = await page(web, path)
        assert "<U+202E>EVIL" not in made.words  # the source of the playbook is in the form for changing it
        assert ("a", {"href": f"/waits/{wait['wait']}"}) in made.elements
    shown = await page(web, f"/waits/{wait['wait']}")
    assert "x<U+202E>EVIL <b>words</b>y" in shown.words
    assert ("a", {"href": f"/runs/{run}#wait-{wait['wait']}"}) in shown.elements
    one = await web.get(f"/api/waits/{wait['wait']}")
    assert "EVIL" in one["approval"]["preview"]["stdin"]
    await web.post(f"/api/waits/{wait['wait']}/decide", 200, decision="deny")
    assert "no longer open" in (await page(web, f"/waits/{wait['wait']}")).words


async def test_two_runs_are_compared(web: ServedApp) -> None:
    first = await drink(web)
    second = str((await web.post(f"/api/runs/{first}/fork", 201, step="1", values={"guest": "Grace"}))["run"])
    await web.until(second, "completed")
    made = await page(web, f"/runs/{first}/diff/{second}")
    for one in (first, second, "guest", "Ada", "Grace", "unchanged", "Tea, test/one", f"from run {first}"):
        assert one in made.words, one
    assert first in (await page(web, f"/runs/{second}")).words
    (web.books / "tea.md").unlink()
    words = (await page(web, "/runs")).words
    assert "Tea" in words
    assert "tea.md" not in words


async def test_connections_name_keys_and_never_show_them(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-this-is-never-shown")
    await web.model(ScriptedModel([])).serve()
    made = await page(web, "/settings/connections")
    assert "from the environment variable OPENAI_API_KEY" in made.words
    assert "sk-this" not in made.words + repr(made.elements)


async def test_untrusted_text_runs_nothing_on_any_page(web: ServedApp) -> None:
    """All text from a playbook, a person or a model, in every place where it is shown."""
    trick = "\n\n".join(TRICKS)

    def says(request: Request) -> str:
        return trick

    bad = json.dumps(TRICKS[1] + TRICKS[0])
    graph = {
        "id": "sly-graph",
        "name": TRICKS[0],
        "description": trick,
        "entry": "a",
        "nodes": {name: {"name": TRICKS[1], "instruction": trick} for name in ("a", "b")},
        "edges": [{"from": "a", "to": "b", "max_iterations": 2}],
    }
    web.book(
        "sly.md",
        f'# {TRICKS[0]}\n\n{TRICKS[1]}\n\n## INPUTS\n\n- `x` (text): {TRICKS[2]}\n\n## STEP 1: {TRICKS[0]}\n\nSay {{{{x}}}}.\n\n@output(said)\n\n## STEP 2: Ask\n\n@elicit(select, {bad}, {bad}, "b")\n',
    )
    web.book("graph.json", json.dumps(graph))
    await web.model(ScriptedModel(says)).serve()
    run = await web.begin(playbook="sly", inputs={"x": trick}, breakpoints="1")
    await web.waiting(run)
    await page(web, f"/runs/{run}")
    await web.post(f"/api/runs/{run}/resume", 202, variables={"x": TRICKS[3]})
    wait = (await web.until(run, "awaiting_input"))["waits"][0]
    for path in ("/", "/inbox", "/runs", f"/runs/{run}", "/playbooks/sly", "/playbooks/sly/run"):
        await page(web, path)
    await web.post(f"/api/waits/{wait['wait']}/answer", 200, value="b")
    await web.until(run, "completed")
    other = await web.begin(playbook="sly", inputs={"x": TRICKS[1]})
    await page(web, f"/runs/{run}/diff/{other}")
    graphed = await web.begin(playbook="sly-graph")
    await web.until(graphed, "completed", "failed")
    await page(web, f"/runs/{graphed}")
    for one in (run, graphed):
        for event in await web.all_events(one):
            assert Markup(str(event.data.get("html", ""))).dangers() == [], event


async def test_a_spent_budget_asks_for_more_and_keeps_the_other_limits(web: ServedApp) -> None:
    run = await drink(web, budget={"tokens": 1, "seconds": 60})
    made = await page(web, f"/runs/{run}")
    [field] = [attributes for _, attributes in made.elements if "data-budget" in attributes]
    assert field["data-budget"] == "tokens"
    assert json.loads(str(field["data-others"]))["seconds"] == 60
    assert "Open the run" in (await page(web, "/inbox")).words
