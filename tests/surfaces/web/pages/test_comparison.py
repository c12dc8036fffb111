"""Comparisons on their pages and over REST: with plots, without scripts, and only for those who see the runs."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service.service import Principal
from tests.surfaces.web.comparisons import BREW, compared
from tests.surfaces.web.served_app import ServedApp

HTML = {"Accept": "text/html"}
CASES = """\
- name: <b>green</b>
- name: black
  inputs: {kind: black}
  expect: {outputs: {"1": never said}}
"""
ANN = Principal("ann", roles=frozenset({"runner"}))


async def test_a_comparison_has_a_page_for_those_who_see_its_runs(web: ServedApp) -> None:
    web.book("brew.md", BREW)
    await web.model(ScriptedModel(["<i>Steep</i> **it**."], cycle=True)).serve(port=0, **{"access.runs": "owner"})
    _, ann = await web.service.add_user("ann", ["runner"])
    _, bob = await web.service.add_user("bob", ["runner"])
    assert "There are no comparisons" in (await web.client.get("/compare", headers=HTML)).text
    id = await compared(web, CASES, ANN)

    shown = (await web.client.get(f"/compare/{id}", headers=HTML)).text
    drawings = re.findall(r"<svg class=\"plot\".*?</svg>", shown)
    assert [ElementTree.fromstring(one).get("role") for one in drawings] == ["img"] * 5
    assert 'aria-label="Passed: test/one 2 of 4; test/two 2 of 4"' in shown
    assert "&lt;b&gt;green&lt;/b&gt;" in shown
    assert "<i>Steep" not in shown.replace("&lt;i&gt;", "")
    assert "<strong>it</strong>" in shown
    assert "never said" in shown
    assert "<script" not in shown.partition("<main")[2]
    assert " style=" not in shown

    found = await web.get(f"/api/compare/{id}")
    runs = [one["run"] for case in found["cases"] for group in case["variants"] for one in group["runs"]]
    assert (len(set(runs)), found["passed"], found["failed"]) == (8, 4, 4)
    pair = f"/runs/{found['cases'][0]['variants'][0]['runs'][0]['run']}/diff/"
    assert pair in shown
    chosen = await web.get(f"/api/compare?runs={runs[0]},{runs[4]}")
    assert (chosen["comparison"], len(chosen["cases"])) == (None, 2)
    assert "Comparison of runs" in (await web.client.get(f"/compare?runs={runs[0]}+{runs[2]}", headers=HTML)).text
    assert [one["id"] for one in (await web.get("/api/compare"))["comparisons"]] == [id]
    assert f'href="/compare/{id}"' in (await web.client.get("/runs", headers=HTML)).text
    assert (await web.client.get(f"/api/compare?runs={runs[0]}")).status_code == 422
    page = (await web.client.get(f"/runs/{runs[0]}", headers=HTML)).text  # other runs can be checked there
    boxes = re.findall(r'name="runs" value="(\w+)"', page)
    assert boxes[0] == runs[0]
    assert set(boxes) == set(runs)

    for token, there in ((ann, True), (bob, False)):
        headers = {"Authorization": f"Bearer {token}"}
        for path in (f"/api/compare/{id}", f"/api/compare?runs={runs[0]},{runs[1]}", f"/compare/{id}"):
            assert (await web.guest.get(path, headers=headers)).status_code == (200 if there else 404), path
        listed = (await web.guest.get("/api/compare", headers=headers)).json()["comparisons"]
        assert [one["id"] for one in listed] == [id] * there
    assert (await web.guest.get(f"/api/compare/{id}")).status_code == 401
