"""Postconditions: the table of assertions, and steps that are checked by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.dialects.pipeline.model import Assertion, DomContains, HttpStatus, JsonPath, Output, Postcondition, Retry
from cuebook.dialects.pipeline.run.postconditions import Evidence, check
from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness, cli, http, ref, shell, words
from tests.support.http_servers import Server, answer

PAGE = '<div id="status">Success!</div>'


def path(*parts: str | int, equals: Any) -> JsonPath:
    return JsonPath(parts, equals)


@pytest.mark.parametrize(
    ("assertion", "evidence", "verdict", "code"),
    [
        (HttpStatus(200), Evidence(200), "passed", ""),
        (HttpStatus(201), Evidence(500), "failed", "http_status_mismatch"),
        (HttpStatus(200), Evidence(), "missing", ""),
        (DomContains("success", case_insensitive=True), Evidence(html=PAGE), "passed", ""),
        (DomContains("success"), Evidence(html=PAGE), "failed", "dom_text_missing"),
        (DomContains("Success"), Evidence(html=PAGE), "passed", ""),
        (DomContains("missing"), Evidence(html="<p>Hello</p>"), "failed", "dom_text_missing"),
        (DomContains("Success"), Evidence(200), "missing", ""),
        (DomContains("Success"), Evidence(html=PAGE, flaw="cut at the limit"), "passed", ""),
        (DomContains("missing"), Evidence(html=PAGE, flaw="cut at the limit"), "missing", ""),
        (DomContains("Success", "#status"), Evidence(html=PAGE), "missing", ""),
        (path("status", equals="ok"), Evidence(json={"status": "ok"}), "passed", ""),
        (path("missing", equals=True), Evidence(json={"status": True}), "failed", "json_path_missing"),
        (path("a", equals={"k": "v", "n": {"a": 1}}), Evidence(json={"a": {"n": {"a": 1}, "k": "v"}}), "passed", ""),
        (path("a", equals={"k": "v"}), Evidence(json={"a": {"k": "w"}}), "failed", "json_path_predicate_failed"),
        (path("a", equals=[1, 2, 3]), Evidence(json={"a": [1, 2, 3]}), "passed", ""),
        (path("a", equals=[1, 2]), Evidence(json={"a": [1, 2, 3]}), "failed", "json_path_predicate_failed"),
        (path("a", equals="42"), Evidence(json={"a": 42}), "failed", "json_path_predicate_failed"),
        (path("a", equals=None), Evidence(json={"a": "some"}), "failed", "json_path_predicate_failed"),
        (path("a", equals=None), Evidence(json={"a": None}), "passed", ""),
        (path("a", equals=[1, 2]), Evidence(json={"a": {"a": 1}}), "failed", "json_path_predicate_failed"),
        (path("a", equals={"a": 1}), Evidence(json={"a": {"a": 1, "b": 2}}), "failed", "json_path_predicate_failed"),
        (path("a", equals=True), Evidence(json={"a": True}), "passed", ""),
        (path("a", equals=True), Evidence(json={"a": 1}), "failed", "json_path_predicate_failed"),
        (path("a", equals=1), Evidence(json={"a": 1.0}), "passed", ""),
        (path("a", equals=1), Evidence(json={"a": 2}), "failed", "json_path_predicate_failed"),
        (path("items", 1, equals="second"), Evidence(json={"items": ["first", "second"]}), "passed", ""),
        (
            path("items", 2, equals="third"),
            Evidence(json={"items": ["first", "second"]}),
            "failed",
            "json_path_missing",
        ),
        (path("a", "b", equals=1), Evidence(json={"a": 42}), "failed", "json_path_missing"),
        (path("a", 0, equals=1), Evidence(json={"a": {"0": 1}}), "failed", "json_path_missing"),
        (path("0", equals=1), Evidence(json=[1]), "failed", "json_path_missing"),
        (path(equals=None), Evidence(json=None), "passed", ""),
        (path("a", equals=1), Evidence(), "missing", ""),
    ],
)
def test_an_assertion(assertion: Assertion, evidence: Evidence, verdict: str, code: str) -> None:
    report = check(Postcondition((assertion,)), evidence)
    (found,) = report.assertions
    assert (report.verdict, found.code) == (verdict, code)


def test_a_failure_counts_more_than_missing_evidence() -> None:
    report = check(Postcondition((HttpStatus(200), path("a", equals=1)), {"owner": "us"}), Evidence(500))
    assert report.verdict == "failed"
    assert report.plain()["metadata"] == {"owner": "us"}


def test_strings_are_masked_in_a_report() -> None:
    wanted = path("a", equals={"t": "hidden wish", "n": 1})
    report = check(
        Postcondition((wanted, DomContains("hidden text"))), Evidence(html="", json={"a": ["hidden fact", 2]})
    )
    plain = report.plain()
    assert "hidden" not in msgspec.json.encode(plain).decode()
    assert plain["assertions"][0]["expected"] == {"t": "[REDACTED]", "n": 1}
    assert plain["assertions"][0]["observed"] == ["[REDACTED]", 2]


# --- of steps ---


async def test_a_mismatch_fails_the_step(harness: PipelineHarness) -> None:
    row = await harness.do(
        shell(
            "a",
            'echo a >> made; echo \'{"state": "open"}\'',
            postcondition=Postcondition((path("state", equals="shut"),)),
        )
    )
    assert row.error is not None
    assert (row.error.code, row.error.message) == (
        "postcondition_failed",
        "Step a failed: postcondition failed: json_path: $.state has a different value",
    )
    (noted,) = await harness.notes(row.id, "postcondition")
    assert noted["verdict"] == "failed"


@pytest.mark.parametrize(
    ("status", "wanted", "ends"), [(404, 404, "completed"), (200, 404, "failed"), (500, 404, "failed")]
)
async def test_a_status_that_a_postcondition_names_is_what_decides(
    harness: PipelineHarness, status: int, wanted: int, ends: str
) -> None:
    async with Server(answer("", status)) as server:
        row = await harness.do(http("a", server.url(), postcondition=Postcondition((HttpStatus(wanted),))))
    assert row.status == ends
    assert row.error is None or row.error.code == "postcondition_failed"


async def test_another_postcondition_does_not_excuse_an_error_status(harness: PipelineHarness) -> None:
    async with Server(answer('{"ok": true}', 500)) as server:
        row = await harness.do(http("a", server.url(), postcondition=Postcondition((path("ok", equals=True),))))
    assert row.error is not None
    assert row.error.code == "http_status"


async def test_a_page_is_searched(harness: PipelineHarness) -> None:
    page = answer(PAGE, 200, [("Content-Type", "text/html; charset=utf-8")])
    async with Server(page) as server:
        row = await harness.do(http("a", server.url(), postcondition=Postcondition((DomContains("Success"),))))
    assert row.status == "completed", row.error


@pytest.mark.parametrize(("decision", "ends"), [("approve", "completed"), ("deny", "failed")])
async def test_missing_evidence_asks_a_person_and_never_repeats_the_effect(
    harness: PipelineHarness, decision: str, ends: str
) -> None:
    row = await harness.do(
        shell(
            "a",
            "echo done >> made; echo as told",
            postcondition=Postcondition((HttpStatus(200),)),
            retry=Retry(3, delay=0.0),
        ),
        cli("b", "echo", words(ref("a", "stdout"))),
    )
    assert row.status == "awaiting_approval"
    assert harness.made("made") == ["done"]
    wait = await harness.wait(row.id)
    assert wait.details["purpose"] == "takeover"
    assert wait.details["rules"] == ["the step was performed, and there is no check that it worked"]
    assert wait.details["preview"]["output of a"] == "as told\n"
    row = await harness.decide(row.id, decision, reason="I looked")
    assert row.status == ends
    assert harness.made("made") == ["done"]
    if decision == "deny":
        assert row.error is not None
        assert row.error.code == "postcondition_unseen"
        assert "I looked" in row.error.message


@pytest.mark.parametrize(("on_expiry", "ends"), [("cancel", "expired"), ("deny", "completed")])
async def test_missing_evidence_that_is_never_reviewed_ends_as_the_policy_says(
    tmp_path: Path, on_expiry: str, ends: str
) -> None:
    harness = PipelineHarness(tmp_path, {**ANYTHING, "approvals": {"expires_after": 60, "on_expiry": on_expiry}})
    row = await harness.do(
        shell("a", "echo done >> made", postcondition=Postcondition((HttpStatus(200),)), on_error="continue"),
        cli("b", "true"),
    )
    row = await harness.later(61, row.id)
    assert row.status == ends
    assert (await harness.statuses(row.id))["a"] == "failed"
    assert harness.made("made") == ["done"]
    await harness.close()


@pytest.mark.parametrize("body", [b"<p>" + b"x" * 40_000 + b"CREATED</p>", b"<p>\xff</p>"])
async def test_an_incomplete_page_is_reviewed_by_a_person(harness: PipelineHarness, body: bytes) -> None:
    """The text may be in the missing part, so the request is not sent again either."""
    async with Server(answer(body, 200, [("Content-Type", "text/html")])) as server:
        created = Postcondition((DomContains("CREATED"),))
        row = await harness.do(http("a", server.url(), "POST", postcondition=created, retry=Retry(3, 0.0)))
        assert row.status == "awaiting_approval"
        assert (await harness.wait(row.id)).details["purpose"] == "takeover"
        row = await harness.decide(row.id, "approve")
    assert row.status == "completed", row.error
    assert len(server.requests) == 1


async def test_the_contract_comes_first(harness: PipelineHarness) -> None:
    row = await harness.do(
        cli("a", "echo", "words", output=Output("json"), postcondition=Postcondition((path("x", equals=1),)))
    )
    assert row.error is not None
    assert row.error.code == "output_contract"
    assert await harness.notes(row.id, "postcondition") == []
