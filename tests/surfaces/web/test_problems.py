"""Errors for people and programs: a browser gets a page, a program gets problem details."""

from __future__ import annotations

import pytest

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.auth.guard import LARGEST_BODY
from tests.surfaces.web.markup import Markup
from tests.surfaces.web.served_app import ServedApp

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SECRET = "Something that only those see who are signed in"
BOOK = f"# {SECRET}\n\n## STEP 1: A\n\nDo A.\n"


async def served(web: ServedApp) -> ServedApp:
    web.book("t.md", BOOK)
    return await web.model(ScriptedModel(["A."], cycle=True)).serve()


@pytest.mark.parametrize("path", ["/", "/playbooks/t", "/runs", "/api/runs", "/api/runs/x/artifact", "/nowhere"])
@pytest.mark.parametrize(
    ("headers", "status", "code", "words"),
    [
        ({"Host": "evil.example"}, 421, "wrong_host", "Unknown host name"),
        ({"Origin": "http://evil.example"}, 403, "foreign_origin", "comes from another site"),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}, 403, "foreign_origin", "comes from another"),
    ],
    ids=["host", "origin", "frame"],
)
async def test_a_refusal_of_the_guard_is_a_page_for_a_browser(
    web: ServedApp, path: str, headers: dict[str, str], status: int, code: str, words: str
) -> None:
    await served(web)
    shown = await web.client.get(path, headers={**BROWSER, **headers})
    assert (shown.status_code, shown.headers["content-type"]) == (status, "text/html; charset=utf-8")
    made = Markup(shown.text)
    assert words in made.words
    # Under another host name the style sheet is refused as well, so that page has inline styles.
    assert made.dangers() == (["<style>"] if status == 421 else [])
    assert SECRET not in shown.text
    assert "Sign out" not in made.words, "a refused request has no user, whatever it was sent with"
    assert "set-cookie" not in shown.headers
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    message = await web.client.get(path, headers=headers)
    assert (message.status_code, message.headers["content-type"]) == (status, "application/problem+json")
    assert message.json()["code"] == code


@pytest.mark.parametrize("path", ["/runs", "/api/runs", "/api/runs/x/artifact", "/api/runs/x/stream"])
async def test_without_a_token_a_browser_gets_the_sign_in_form(web: ServedApp, path: str) -> None:
    await served(web)
    shown = await web.guest.get(path, headers=BROWSER)
    assert (shown.status_code, shown.headers["www-authenticate"]) == (401, "Bearer")
    assert f"/sign-in?next={path}" in [a.get("href") for _, a in Markup(shown.text).elements]
    for accept in ("application/json", "text/html, application/json", "*/*", "text/event-stream"):
        message = await web.guest.get(path, headers={"Accept": accept})
        wanted = "text/html" if path == "/runs" and "json" not in accept else "application/problem+json"
        assert (message.status_code, message.headers["content-type"].partition(";")[0]) == (401, wanted)


async def test_a_refused_form_is_a_page(web: ServedApp) -> None:
    await served(web)
    wrong = await web.client.post("/sign-in", content="x", headers={**BROWSER, "Content-Type": "text/plain"})
    assert (wrong.status_code, wrong.headers["content-type"]) == (415, "text/html; charset=utf-8")
    large = await web.client.post("/sign-in", content=b"a" * (LARGEST_BODY + 1), headers={**BROWSER, **FORM})
    assert (large.status_code, large.headers["content-type"]) == (413, "text/html; charset=utf-8")


async def test_too_many_runs_are_reported_as_a_page_or_as_json(web: ServedApp) -> None:
    web.book("t.md", BOOK)
    await web.model(ScriptedModel(["A."], cycle=True)).serve(rate_limit="1/hour")
    await web.begin(playbook="t")
    for accept, wanted in ((BROWSER, "text/html"), ({}, "application/problem+json")):
        refused = await web.client.post("/api/runs", json={"playbook": "t"}, headers=accept)
        assert (refused.status_code, refused.headers["content-type"].partition(";")[0]) == (429, wanted)
        assert int(refused.headers["retry-after"]) > 0


async def test_the_fix_names_pages_or_api_calls(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("asks.md", '# Asks\n\n## STEP 1: Ask\n\n@elicit(input, "What?")\n'))
    wait = (await web.waiting(run))["wait"]
    asked = [("/api/runs/{}/resume", run, {}), ("/api/waits/{}/decide", wait, {"decision": "approve"})]
    for path, id, given in asked:
        message = await web.client.post(path.format(id), json=given)
        assert message.status_code in (409, 422)
        assert message.json()["fix"].startswith("POST /api/waits/WAIT/answer, with WAIT from `waits` of GET /api/runs/")
        shown = await web.client.post(path.format(id), json=given, headers={"Sec-Fetch-Mode": "cors"})
        assert shown.json()["fix"] == "The form on its page answers it."
    for path, fix in (
        ("/api/runs/nosuchrun", "GET /api/runs lists them."),
        ("/api/waits/x", "GET /api/inbox lists the open waits."),
    ):
        assert (await web.client.get(path)).json()["fix"] == fix


async def test_an_error_page_shows_the_number_of_waits(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("asks.md", '# Asks\n\n## STEP 1: Ask\n\n@elicit(input, "What?")\n'))
    await web.waiting(run)
    for path in ("/runs/nosuchrun", "/nowhere"):
        shown = await web.client.get(path, headers=BROWSER)
        assert shown.status_code == 404
        badges = [a for _, a in Markup(shown.text).elements if a.get("class") == "badge"]
        assert [one["aria-label"] for one in badges] == ["1 item waiting"]
    nobody = await web.guest.get("/nowhere", headers=BROWSER)
    assert nobody.status_code == 404
    assert "badge" not in nobody.text
    assert "Sign out" not in nobody.text


async def test_a_page_for_a_missing_run_names_pages_and_the_api_names_routes(web: ServedApp) -> None:
    await served(web)
    for accept in ("text/html", "*/*"):
        shown = await web.client.get("/runs/nosuchrun000", headers={"Accept": accept})
        assert (shown.status_code, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "The Runs page lists them." in shown.text
        assert "GET /api" not in shown.text
    message = await web.client.get("/api/runs/nosuchrun000")
    assert message.json()["fix"] == "GET /api/runs lists them."
